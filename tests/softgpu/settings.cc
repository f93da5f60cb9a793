// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/settings.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <unistd.h>
#include <utility>

#include "tests/softgpu/ownership.h"
#include "tests/softgpu/report.h"

namespace softgpu {

namespace {

constexpr unsigned kMostGpus = 16;

using Reader = std::function<bool(const std::string&, Settings&)>;

std::vector<std::string> parts(const std::string& text) {
  std::vector<std::string> list;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t end = std::min(text.find(',', at), text.size());
    list.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return list;
}

bool readNumber(const std::string& text, unsigned long least, unsigned long most, unsigned long& value) {
  char* end = nullptr;
  value = std::strtoul(text.c_str(), &end, 10);
  return !text.empty() && text[0] != '-' && *end == 0 && value >= least && value <= most;
}

bool readUnsigned(const std::string& text, unsigned long least, unsigned long most, unsigned& value) {
  unsigned long number = 0;
  if (!readNumber(text, least, most, number)) return false;
  value = static_cast<unsigned>(number);
  return true;
}

bool readSwitch(const std::string& text, bool& value) {
  value = text == "1";
  return text == "0" || text == "1";
}

bool readDmabuf(const std::string& text, Settings& settings) {
  settings.dmabuf = text == "0" ? Dmabuf::none : text == "1" ? Dmabuf::opaque : Dmabuf::card;
  return text == "0" || text == "1" || text == "card";
}

bool readArchitecture(const std::string& text, Settings& settings) {
  unsigned both = 0;
  if (!readUnsigned(text, 50, 129, both)) return false;
  settings.major = both / 10;
  settings.minor = both % 10;
  return true;
}

bool isPciAddress(const std::string& text) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  int used = 0;
  const int found = std::sscanf(text.c_str(), "%4x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used);
  return found == 4 && static_cast<size_t>(used) == text.size() && text.size() == 12;
}

bool readPci(const std::string& text, Settings& settings) {
  settings.pci = parts(text);
  return std::all_of(settings.pci.begin(), settings.pci.end(), isPciAddress);
}

bool readNuma(const std::string& text, Settings& settings) {
  for (const auto& part : parts(text)) {
    unsigned node = 0;
    if (part != "-1" && !readUnsigned(part, 0, 1023, node)) return false;
    settings.numa.push_back(part == "-1" ? -1 : static_cast<int>(node));
  }
  return true;
}

bool readTime(const std::string& text, unsigned& microseconds) {
  static constexpr std::pair<const char*, unsigned> kUnits[] = {{"us", 1}, {"ms", 1000}, {"s", 1000000}};
  for (const auto& [unit, factor] : kUnits) {
    const std::string name = unit;
    if (text.size() <= name.size() || text.compare(text.size() - name.size(), name.size(), name) != 0)
      continue;
    unsigned value = 0;
    if (!readUnsigned(text.substr(0, text.size() - name.size()), 0, 3600000000UL / factor, value))
      return false;
    microseconds = value * factor;
    return true;
  }
  return false;
}

bool readFaults(const std::string& text, Settings& settings) {
  for (const auto& part : parts(text)) {
    const size_t equal = part.find('=');
    if (equal == std::string::npos) return false;
    const std::string name = part.substr(0, equal), value = part.substr(equal + 1);
    bool good = false;
    if (name == "slow") good = readTime(value, settings.faults.slow);
    if (name == "late") good = readTime(value, settings.faults.late);
    if (name == "hang") good = readUnsigned(value, 1, 1000000000, settings.faults.hang);
    if (!good) return false;
  }
  return true;
}

const std::vector<std::pair<const char*, Reader>>& readers() {
  static const std::vector<std::pair<const char*, Reader>> kReaders{
      {"SOFTGPU_COUNT", [](auto& text, auto& all) { return readUnsigned(text, 0, kMostGpus, all.gpus); }},
      {"SOFTGPU_ARCH", readArchitecture},
      {"SOFTGPU_PCI", readPci},
      {"SOFTGPU_NUMA", readNuma},
      {"SOFTGPU_GDR", [](auto& text, auto& all) { return readSwitch(text, all.gdr); }},
      {"SOFTGPU_DMABUF", readDmabuf},
      {"SOFTGPU_PCIE_MAPPING", [](auto& text, auto& all) { return readSwitch(text, all.pcieMapping); }},
      {"SOFTGPU_ORDERED", [](auto& text, auto& all) { return readSwitch(text, all.ordered); }},
      {"SOFTGPU_PEER", [](auto& text, auto& all) { return readSwitch(text, all.peer); }},
      {"SOFTGPU_DRIVER", [](auto& text, auto& all) { return readUnsigned(text, 11000, 99990, all.driver); }},
      {"SOFTGPU_STRICT", [](auto& text, auto& all) { return readSwitch(text, all.strict); }},
      {"SOFTGPU_WAITS", [](auto& text, auto& all) { return readSwitch(text, all.waits); }},
      {"SOFTGPU_MEMORY_MIB",
       [](auto& text, auto& all) {
         unsigned long mib = 0;
         if (!readNumber(text, 1, 1 << 24, mib)) return false;
         all.memory = size_t{mib} << 20;
         return true;
       }},
      {"SOFTGPU_FAULTS", readFaults},
  };
  return kReaders;
}

void fillAddresses(Settings& settings) {
  for (size_t gpu = settings.pci.size(); gpu < settings.gpus; ++gpu) {
    char address[16];
    std::snprintf(address, sizeof address, "0000:%02x:00.0", static_cast<unsigned>(0x10 * (gpu + 1)) & 0xff);
    settings.pci.emplace_back(address);
  }
  settings.numa.resize(std::max<size_t>(settings.numa.size(), settings.gpus), -1);
}

// As CUDA reads it: ordinals up to the first that does not exist.
void readVisible(Settings& settings) {
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (unsigned gpu = 0; gpu < settings.gpus; ++gpu) settings.visible.push_back(gpu);
    return;
  }
  for (const auto& part : parts(text)) {
    unsigned gpu = 0;
    if (settings.gpus == 0 || !readUnsigned(part, 0, settings.gpus - 1, gpu)) return;
    settings.visible.push_back(gpu);
  }
}

Settings read() {
  Settings all;
  for (const auto& [name, reader] : readers()) {
    const char* text = std::getenv(name);
    if (text == nullptr || reader(text, all)) continue;
    report(std::string(name) + "=" + text +
           " is not understood, so this process has no GPU; tests/softgpu/README.md lists values");
    all.wrong = name;
    all.gpus = 0;
    all.visible.clear();
    return all;
  }
  fillAddresses(all);
  readVisible(all);
  if (!speaks()) return all;
  report("no real GPU is used by process " + std::to_string(getpid()) + ": " +
         std::to_string(all.visible.size()) + " GPU(s) of compute capability " + std::to_string(all.major) +
         "." + std::to_string(all.minor) + " are played by the CPU, and times are not a GPU's");
  return all;
}

}  // namespace

const Settings& settings() {
  static const auto* const kSettings = &immortal<Settings>(read());
  return *kSettings;
}

}  // namespace softgpu
