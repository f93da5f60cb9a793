// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <utility>

namespace softgpu {

// An object that the process keeps to its end and past it: exit handlers still call the driver.
template <typename T, typename... Arguments>
T& immortal(Arguments&&... arguments) {
  return *std::make_unique<T>(std::forward<Arguments>(arguments)...).release();
}

// An object that a caller of the API holds as a handle, until takeBack.
template <typename T, typename... Arguments>
T* handOut(Arguments&&... arguments) {
  return std::make_unique<T>(std::forward<Arguments>(arguments)...).release();
}
template <typename T>
void takeBack(T* object) {
  std::unique_ptr<T>(object).reset();
}

}  // namespace softgpu
