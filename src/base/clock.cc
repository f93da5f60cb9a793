// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/clock.h"

namespace weft {

const Clock& Clock::system() {
  static const Clock clock;
  return clock;
}

}  // namespace weft
