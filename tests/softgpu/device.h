// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include "tests/softgpu/api.h"

namespace softgpu {

constexpr size_t kMostDevices = 16;

// A device's primary context: that is all there is, so contexts that are created name it too. It is active
// while somebody has retained it; what was made in it outlives that here. Any thread.
struct Context {
  int device = 0;
  std::atomic<int> users{0};
};

int deviceCount();
bool isDevice(int ordinal);
// The device of the calling thread's context; without one that which it chose for the runtime, 0 at first.
int currentDevice();
void setCurrentDevice(int ordinal);
// Whether the calling thread has a context current. As on a real driver, it has none until somebody gives it
// one: the runtime with the thread's first call that needs it, the driver API when it is asked to.
bool hasContext();
void leaveContext();
Context& contextOf(int ordinal);

// A device attribute by its number in the driver API. Unknown ones are 0, as for what a device does not have.
int deviceAttribute(int attribute, int ordinal);
std::string deviceName(int ordinal);
std::string devicePciAddress(int ordinal);  // lower case, with the function
void deviceUuid(int ordinal, char (&uuid)[16]);

}  // namespace softgpu
