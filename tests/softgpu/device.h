// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <string>

#include "tests/softgpu/api.h"

namespace softgpu {

constexpr size_t kMostDevices = 16;

// A device's primary context: that is all there is, so contexts that are created name it too.
struct Context {
  int device = 0;
  int users = 0;
};

int deviceCount();
bool isDevice(int ordinal);
// The calling thread's device; 0 until it chose one.
int currentDevice();
void setCurrentDevice(int ordinal);
Context& contextOf(int ordinal);

// A device attribute by its number in the driver API. Unknown ones are 0, as for what a device does not have.
int deviceAttribute(int attribute, int ordinal);
std::string deviceName(int ordinal);
std::string devicePciAddress(int ordinal);  // lower case, with the function
void deviceUuid(int ordinal, char (&uuid)[16]);

}  // namespace softgpu
