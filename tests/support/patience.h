// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>

#include "src/base/config.h"
#include "src/base/number.h"

namespace weft::test {

// The factor for time limits of tests: WEFT_TEST_PATIENCE, for machines that are emulated. Any thread.
inline int patience() {
  const char* text = environmentValue("WEFT_TEST_PATIENCE");
  return text ? std::max(parseNumber<int>(text).value_or(1), 1) : 1;
}

}  // namespace weft::test
