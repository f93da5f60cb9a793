// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/registry_tests.h"

#include "providers/fault/transport.h"
#include "providers/loop/transport.h"
#include "providers/registry.h"

namespace weft {

namespace {

using Made = Result<std::unique_ptr<Transport>>;

// "loop" or "loop(OPTIONS)"
Made makeLoop(const std::string& spec, const Config& config) {
  std::string text;
  if (spec != "loop") {
    if (spec.back() != ')') return badProvider(spec, "the parenthesis is not closed");
    text = spec.substr(5, spec.size() - 6);
  }
  TRY(auto options, loop::parseOptions(text, config));
  return std::unique_ptr<Transport>(loop::makeTransport(std::move(options)));
}

// "fault(RULES):INNER"
Made makeFault(const std::string& spec, const Config& config, const Clock& clock) {
  const size_t end = spec.find("):");
  if (end == std::string::npos) return badProvider(spec, "write fault(RULES):PROVIDER");
  TRY(auto options, fault::parseOptions(spec.substr(6, end - 6)));
  TRY(auto inner, makeTransport(spec.substr(end + 2), config, clock));
  return std::unique_ptr<Transport>(fault::makeTransport(std::move(inner), std::move(options)));
}

}  // namespace

Made makeTestProvider(const std::string& spec, const Config& config, const Clock& clock) {
  return spec.starts_with("fault(") ? makeFault(spec, config, clock) : makeLoop(spec, config);
}

const char* testProviders() {
  return " loop fault";
}

}  // namespace weft
