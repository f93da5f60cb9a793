// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "providers/local/transport.h"
#include "providers/local/wire.h"
#include "src/base/config.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"
#include "tests/support/seam_end.h"

// Helpers for tests of the local provider. One thread.
namespace weft::test {

inline Config localConfig() {
  Config config;
  config.closeTimeout = Milliseconds(300) * patience();
  config.connectTimeout = Milliseconds(3000) * patience();
  return config;
}

inline local::Whereabouts whereIs(const SeamEnd& end) {
  auto where = local::decodeAddress(end.lane->address());
  REQUIRE(where);
  return where.take();
}

inline bool contains(const std::vector<std::string>& words, const std::string& part) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& one) { return one.find(part) != std::string::npos; });
}

}  // namespace weft::test
