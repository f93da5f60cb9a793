// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/settings.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>

#include "tests/softefa/faults.h"

namespace softefa {

namespace {

using Reader = std::function<bool(const std::string&, Settings&)>;

bool readText(const std::string& text, std::string& value) {
  value = text;
  return !text.empty() && text.find('/') == std::string::npos;
}

bool readUnsigned(const std::string& text, uint64_t least, uint64_t most, unsigned& value) {
  uint64_t number = 0;
  if (!parseNumber(text, number) || number < least || number > most) return false;
  value = static_cast<unsigned>(number);
  return true;
}

bool readGeneration(const std::string& text, Settings& settings) {
  static const std::array<std::pair<const char*, Generation>, 5> kNames{
      {{"send", Generation::send},
       {"read", Generation::read},
       {"write", Generation::write},
       {"unsolicited", Generation::unsolicited},
       {"inorder", Generation::inOrder}}};
  for (const auto& [name, generation] : kNames) {
    if (text != name) continue;
    settings.generation = generation;
    return true;
  }
  return false;
}

bool isPciAddress(const std::string& text) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  int used = 0;
  const int found = std::sscanf(text.c_str(), "%4x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used);
  return found == 4 && static_cast<size_t>(used) == text.size() && text.size() == 12;
}

bool readPci(const std::string& text, Settings& settings) {
  settings.pci = splitList(text);
  for (const auto& address : settings.pci) {
    if (!isPciAddress(address)) return false;
  }
  return !settings.pci.empty();
}

bool readNuma(const std::string& text, Settings& settings) {
  settings.numa.clear();
  for (const auto& item : splitList(text)) {
    uint64_t node = 0;
    if (!parseNumber(item, node) || node > 1023) return false;
    settings.numa.push_back(static_cast<int>(node));
  }
  return !settings.numa.empty();
}

bool readStrict(const std::string& text, Settings& settings) {
  static const std::array<std::pair<const char*, unsigned>, 8> kNames{{{"all", ~0U},
                                                                       {"1", ~0U},
                                                                       {"0", 0},
                                                                       {"cq", kStrictCq},
                                                                       {"mr", kStrictMr},
                                                                       {"overlap", kStrictOverlap},
                                                                       {"ah", kStrictAh},
                                                                       {"state", kStrictState}}};
  settings.strict = 0;
  for (const auto& item : splitList(text)) {
    bool known = false;
    for (const auto& [name, bits] : kNames) {
      if (item != name) continue;
      settings.strict |= bits;
      known = true;
    }
    if (!known) return false;
  }
  return true;
}

bool readUnresponsive(const std::string& text, Settings& settings) {
  std::chrono::microseconds time{};
  if (!parseDuration(text, time)) return false;
  settings.unresponsive = std::chrono::duration_cast<std::chrono::milliseconds>(time);
  return true;
}

bool readFaults(const std::string& text, Settings& settings) {
  settings.faults = text;
  std::string wrong;
  return Faults(1, 0).apply(text, wrong);
}

const std::vector<std::pair<const char*, Reader>>& readers() {
  static const std::vector<std::pair<const char*, Reader>> kReaders{
      {"SOFTEFA_DIR",
       [](const std::string& t, Settings& s) { return (s.directory = t, t.starts_with('/')); }},
      {"SOFTEFA_FABRIC", [](const std::string& t, Settings& s) { return readText(t, s.fabric); }},
      {"SOFTEFA_HOST", [](const std::string& t, Settings& s) { return readText(t, s.host); }},
      {"SOFTEFA_NICS", [](const std::string& t, Settings& s) { return readUnsigned(t, 0, 8, s.nics); }},
      {"SOFTEFA_GENERATION", readGeneration},
      {"SOFTEFA_PCI", readPci},
      {"SOFTEFA_NUMA", readNuma},
      {"SOFTEFA_STRICT", readStrict},
      {"SOFTEFA_BATCH", [](const std::string& t, Settings& s) { return readUnsigned(t, 1, 64, s.batch); }},
      {"SOFTEFA_MAX_AH",
       [](const std::string& t, Settings& s) { return readUnsigned(t, 1, 65534, s.maxAddressHandles); }},
      {"SOFTEFA_MAX_MR",
       [](const std::string& t, Settings& s) { return readUnsigned(t, 1, 65535, s.maxRegions); }},
      {"SOFTEFA_MEMLOCK", [](const std::string& t, Settings& s) { return parseNumber(t, s.lockedBytes); }},
      {"SOFTEFA_UNRESPONSIVE", readUnresponsive},
      {"SOFTEFA_FAULTS", readFaults},
      {"SOFTEFA_CONTROL", [](const std::string& t, Settings& s) { return (s.control = t, true); }},
      {"SOFTEFA_SEED", [](const std::string& t, Settings& s) { return parseNumber(t, s.seed); }},
      {"SOFTEFA_STATISTICS",
       [](const std::string& t, Settings& s) { return (s.statistics = t == "1", true); }},
  };
  return kReaders;
}

}  // namespace

const char* environment(const char* name) {
  return std::getenv(name);
}

std::vector<std::string> splitList(const std::string& text) {
  std::vector<std::string> items;
  size_t begin = 0;
  while ((begin = text.find_first_not_of(",; \t\n", begin)) != std::string::npos) {
    const size_t end = std::min(text.find_first_of(",; \t\n", begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return items;
}

bool parseNumber(const std::string& text, uint64_t& value) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return false;
  value = std::strtoull(text.c_str(), nullptr, 10);
  return true;
}

bool parseDuration(const std::string& text, std::chrono::microseconds& value) {
  const size_t digits = text.find_first_not_of("0123456789");
  const std::string unit = digits == std::string::npos ? "us" : text.substr(digits);
  uint64_t number = 0;
  if (!parseNumber(text.substr(0, digits), number)) return false;
  const int64_t factor = unit == "us" ? 1 : unit == "ms" ? 1000 : unit == "s" ? 1000000 : 0;
  value = std::chrono::microseconds(static_cast<int64_t>(number) * factor);
  return factor != 0;
}

bool readSettings(Settings& settings) {
  for (const auto& [name, read] : readers()) {
    const char* text = environment(name);
    if (!text || read(text, settings)) continue;
    std::fprintf(stderr, "softefa: %s=%s is not understood; there are no devices\n", name, text);
    return false;
  }
  return true;
}

}  // namespace softefa
