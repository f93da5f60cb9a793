// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/device.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <map>

#include "tests/softgpu/ownership.h"
#include "tests/softgpu/settings.h"

namespace softgpu {

namespace {

// No destructor: NCCL asks for the device in exit handlers.
thread_local int chosenDevice = 0;
thread_local bool inContext = false;

struct PciAddress {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
};

PciAddress pciOf(int ordinal) {
  PciAddress address;
  const std::string text = devicePciAddress(ordinal);
  if (std::sscanf(text.c_str(), "%x:%x:%x.%x", &address.domain, &address.bus, &address.device,
                  &address.function) != 4)
    return {};
  return address;
}

// The same for all devices. Numbers are CU_DEVICE_ATTRIBUTE_*, figures those of a GPU with compute
// capability 8.0.
const std::map<int, int>& commonAttributes() {
  static const auto* const kAttributes = &immortal<std::map<int, int>>(std::map<int, int>{
      {1, 1024},
      {2, 1024},
      {3, 1024},
      {4, 64},  // threads in a block and in its dimensions
      {5, 2147483647},
      {6, 65535},
      {7, 65535},  // blocks in a grid
      {8, 49152},
      {9, 65536},
      {10, 32},
      {12, 65536},  // shared and constant memory, warp,
                    // registers
      {13, 1410000},
      {16, 108},
      {19, 1},
      {31, 1},  // clock, processors, host memory can be
                // mapped, concurrent kernels
      {36, 1215000},
      {37, 5120},
      {38, 41943040},
      {39, 2048},
      {40, 3},
      {41, 1},  // memory, threads,
                // copy engines, one
                // address space
      {78, 1},
      {81, 167936},
      {82, 65536},
      {86, 0},
      {88, 0},
      {90, 1},
      {95, 1},
      {97, 166912},
      {99, 1},
      {102, 1},
      {103, 1},
      {106, 32},
      {115, 1},
      {117, 1},
      {119, 1},
      {125, 1},
      {126, 1},
      {128, 1},  // fabric handles, which nobody may have here (cuMemCreate)
      {129, 1},
  });
  return *kAttributes;
}

}  // namespace

int deviceCount() {
  return static_cast<int>(settings().visible.size());
}

bool isDevice(int ordinal) {
  return ordinal >= 0 && ordinal < deviceCount();
}

int currentDevice() {
  return chosenDevice;
}

void setCurrentDevice(int ordinal) {
  chosenDevice = ordinal;
  inContext = true;
}

bool hasContext() {
  return inContext && deviceCount() > 0;
}

void leaveContext() {
  inContext = false;
}

Context& contextOf(int ordinal) {
  static auto* const contexts = &immortal<std::array<Context, kMostDevices>>();
  Context& context = (*contexts)[static_cast<size_t>(ordinal)];
  context.device = ordinal;
  return context;
}

int deviceAttribute(int attribute, int ordinal) {
  const Settings& all = settings();
  const unsigned gpu = all.visible[static_cast<size_t>(ordinal)];
  switch (attribute) {
    case 33:
      return static_cast<int>(pciOf(ordinal).bus);
    case 34:
      return static_cast<int>(pciOf(ordinal).device);
    case 50:
      return static_cast<int>(pciOf(ordinal).domain);
    case 75:
      return static_cast<int>(all.major);
    case 76:
      return static_cast<int>(all.minor);
    case 110:
    case 116:
      return all.gdr ? 1 : 0;
    case 118:
      return all.ordered ? 100 : 0;
    case 124:
      return all.dmabuf != Dmabuf::none ? 1 : 0;
    case 134:
      return all.numa[gpu];
    default:
      break;
  }
  const auto found = commonAttributes().find(attribute);
  return found == commonAttributes().end() ? 0 : found->second;
}

std::string deviceName(int) {
  return "weft software GPU";
}

std::string devicePciAddress(int ordinal) {
  const Settings& all = settings();
  std::string address = all.pci[all.visible[static_cast<size_t>(ordinal)]];
  for (auto& letter : address)
    letter = static_cast<char>(letter >= 'A' && letter <= 'F' ? letter - 'A' + 'a' : letter);
  return address;
}

void deviceUuid(int ordinal, char (&uuid)[16]) {
  std::memset(uuid, 0, sizeof uuid);
  const std::string address = devicePciAddress(ordinal);
  std::snprintf(uuid, sizeof uuid, "sg%s", address.c_str() + 2);
}

}  // namespace softgpu
