// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "weft/transport.h"

// The providers that only weft's own tests use: loop, inside one process, and fault, in front of another one.
// What is installed does not have them. A program is linked with one of the two implementations:
// registry_tests.cc has them, registry_no_tests.cc says that they are not there. Called by the registry
// alone.
namespace weft {

// Of such a spec: "loop", "loop(OPTIONS)" or "fault(RULES):PROVIDER".
Result<std::unique_ptr<Transport>> makeTestProvider(const std::string& spec, const Config& config,
                                                    const Clock& clock);

// Their names with a blank before each; empty: this program has none.
const char* testProviders();

// The error about a spec of WEFT_PROVIDER; in registry.cc.
Error badProvider(const std::string& spec, const std::string& why);

}  // namespace weft
