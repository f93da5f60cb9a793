// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/registry_tests.h"

namespace weft {

Result<std::unique_ptr<Transport>> makeTestProvider(const std::string& spec, const Config&, const Clock&) {
  return badProvider(
      spec,
      "loop and fault are for weft's own tests, and this copy of weft is without them (a build "
      "tree has one with them in tests/complete)");
}

const char* testProviders() {
  return "";
}

}  // namespace weft
