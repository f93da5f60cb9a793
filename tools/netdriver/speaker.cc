// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/speaker.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <utility>

namespace weft::netdriver {

namespace {

struct Name {
  bool set = false;
  std::string text;
};

// Never destroyed: a plugin's thread may speak while the process ends.
Name& name() {
  static auto& one = *std::make_unique<Name>().release();
  return one;
}

// Local time, as the logs beside it have it.
std::string timeOfDay() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  const auto ms = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count() % 1000);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%02d:%02d:%02d.%03d", parts.tm_hour, parts.tm_min, parts.tm_sec,
                ms);
  return text.data();
}

}  // namespace

void setSpeaker(std::string text) {
  name() = {true, std::move(text)};
}

std::string speaker() {
  const Name& one = name();
  if (!one.set) return {};
  return timeOfDay() + (one.text.empty() ? " " : " " + one.text + ": ");
}

}  // namespace weft::netdriver
