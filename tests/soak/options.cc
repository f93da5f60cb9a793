// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/soak/options.h"

#include <cstdlib>

#include "src/base/config.h"
#include "src/base/number.h"
#include "src/base/random.h"
#include "tools/netdriver/library.h"

namespace weft::soak {

namespace {

// In a test run the tier decides how long, where nobody says so.
double minutesOfTier() {
  const char* full = environmentValue("WEFT_TEST_FULL");
  return full != nullptr && std::string(full) == "1" ? 30 : 0.1;
}

bool positive(const std::string& text, double* out) {
  char* end = nullptr;
  *out = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && *out > 0 && *out <= 10'000;
}

template <class Number>
bool number(const std::string& text, Number* out) {
  const auto value = parseNumber<Number>(text);
  if (value) *out = *value;
  return value.has_value();
}

bool assign(const std::string& name, const std::string& value, Options* options) {
  if (name == "--minutes")
    return value == "tier" ? (options->minutes = minutesOfTier()) > 0 : positive(value, &options->minutes);
  if (name == "--seed") return number(value, &options->seed);
  if (name == "--peers") return number(value, &options->peers) && options->peers >= 1 && options->peers <= 16;
  if (name == "--port") return number(value, &options->port);
  if (name == "--abi") return number(value, &options->abi) && options->abi >= 8 && options->abi <= 12;
  if (name == "--provider")
    options->provider = value;
  else if (name == "--plugin")
    options->plugin = value;
  else if (name == "--env")
    options->environment.push_back(value);
  else
    return false;
  return !value.empty();
}

}  // namespace

Result<Options> parseOptions(int argc, char** argv) {
  Options options;
  options.provider = WEFT_SOAK_PROVIDER;
  options.plugin = netdriver::defaultPluginPath();
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--verbose") {
      options.verbose = true;
      continue;
    }
    if (i + 1 == argc || !assign(name, argv[i + 1], &options))
      return Error(
          Code::invalidArgument, "reading the arguments",
          name + (i + 1 == argc ? " has no value" : " " + std::string(argv[i + 1]) + " does not fit"));
    ++i;
  }
  while (options.seed == 0) options.seed = randomU64() % 1'000'000'000;
  return options;
}

const char* usage() {
  return "usage: soak [--minutes M|tier] [--seed N] [--provider P] [--peers N] [--plugin PATH] [--verbose]\n"
         "  --minutes    how long; tier: 6 s, with WEFT_TEST_FULL=1 30 minutes (default 30)\n"
         "  --seed       of every choice; drawn and printed when it is not given\n"
         "  --provider   the fabric under the faults, as WEFT_PROVIDER names it (default " WEFT_SOAK_PROVIDER
         ")\n"
         "  --peers      processes beside this one (default 3)\n";
}

}  // namespace weft::soak
