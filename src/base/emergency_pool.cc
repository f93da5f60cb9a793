// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/emergency_pool.h"

#include <dlfcn.h>

// Of libstdc++, for tools that look for leaks; no header has it. Absent in other C++ libraries.
namespace __gnu_cxx {
[[gnu::weak]] void __freeres();
}

namespace weft {

namespace {

const void* libraryOf(const void* address) {
  Dl_info found{};
  return ::dladdr(address, &found) != 0 ? found.dli_fbase : nullptr;
}

}  // namespace

void giveBackEmergencyPool() {
  const auto give = &__gnu_cxx::__freeres;
  const void* ours = libraryOf(reinterpret_cast<const void*>(&giveBackEmergencyPool));
  if (give && ours && libraryOf(reinterpret_cast<const void*>(give)) == ours) give();
}

}  // namespace weft
