// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/crypto/library.h"

#include <mutex>
#include <sodium.h>

// The one call that starts libsodium.
namespace weft {

void startSodium() {
  static std::once_flag once;
  std::call_once(once, [] { [[maybe_unused]] const int started = sodium_init(); });
}

}  // namespace weft
