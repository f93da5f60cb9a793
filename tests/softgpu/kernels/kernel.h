// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/softgpu/api.h"

namespace softgpu {

// A kernel of a program: its (mangled) name, and an address inside of the library that brought it.
struct Kernel {
  std::string name;
  const void* code = nullptr;
};

// One launch. Its parameters were copied when it was launched.
struct Launch {
  unsigned blocks = 0;
  std::vector<char> parameters;
  std::function<void(Launch&)> play;  // runs in the stream's thread
};

// Copies parameters that were given one by one. False: the kernel is not one that the software GPU plays.
bool gatherParameters(const Kernel& kernel, void** parameters, std::vector<char>& bytes);

// Finds who plays the kernel and sets `launch.play`. Any thread. Otherwise an error, and a line that names
// kernel and reason.
Result prepareLaunch(const Kernel& kernel, Launch& launch);

}  // namespace softgpu
