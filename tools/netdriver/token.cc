// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/token.h"

#include <array>
#include <span>

#include "src/base/config.h"
#include "src/base/random.h"
#include "src/base/secret_file.h"

// Tokens as letters, and the key that proofs are made with.
namespace weft::netdriver {

namespace {

constexpr size_t kFewest = 16;  // letters

}  // namespace

std::string freshToken() {
  constexpr const char* kDigits = "0123456789abcdef";
  std::array<std::byte, 16> bytes{};
  fillRandom(bytes);
  std::string token;
  for (const std::byte one : bytes) {
    token += kDigits[std::to_integer<unsigned>(one) >> 4];
    token += kDigits[std::to_integer<unsigned>(one) & 15];
  }
  return token;
}

Result<std::string> givenToken(const std::string& option) {
  const char* variable = environmentValue(kTokenVariable);
  TRY(std::string token, readSecretSetting(!option.empty() ? option : variable != nullptr ? variable : ""));
  if (token.empty() || token.size() >= kFewest) return token;
  return Error(Code::invalidArgument, "rendezvous",
               "the token of the run has " + std::to_string(token.size()) +
                   " letters, and 16 are the fewest: " + kTokenVariable +
                   "=$(openssl rand -hex 16) makes one");
}

TokenKey keyOf(const std::string& token, const Protection& protection) {
  return protection.keyFor(std::as_bytes(std::span(token.data(), token.size())), "weft run token");
}

}  // namespace weft::netdriver
