// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/progress.h"

#include <unistd.h>

#include <fmt/format.h>

namespace weft::perf {

namespace {

constexpr std::chrono::milliseconds kPause{500};
constexpr const char* kWipe = "\r\x1b[K";

// A terminal that does not take it now goes without.
void writeTo(int fd, const std::string& text) {
  [[maybe_unused]] const ssize_t ignored = ::write(fd, text.data(), text.size());
}

}  // namespace

void Progress::begin(std::string label, int iterations) {
  label_ = std::move(label);
  iterations_ = iterations;
  done_ = 0;
  ++step_;
}

void Progress::iteration(Clock::time_point now) {
  ++done_;
  if (!enabled() || now < next_) return;
  next_ = now + kPause;
  show(now);
}

void Progress::show(Clock::time_point now) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - started_).count();
  writeTo(fd_, fmt::format("{}{} of {}: {}, iteration {} of {}, {}:{:02} so far", kWipe, step_, steps_,
                           label_, done_, iterations_, seconds / 60, seconds % 60));
  shown_ = true;
}

void Progress::wipe() {
  if (shown_) writeTo(fd_, kWipe);
  shown_ = false;
}

}  // namespace weft::perf
