// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "src/base/crypto/protection.h"
#include "src/base/net/proof.h"
#include "weft/result.h"

// The token of a run: who knows it may take a rank. Our own launcher makes one for the ranks that it starts;
// between hosts the user hands one to all of them. It crosses the network in no form but as a proof over
// nonces of both ends. Values; any thread.
namespace weft::netdriver {

inline constexpr const char* kTokenVariable = "WEFT_TOKEN";

// A fresh one, in letters that need no quotes in a shell.
std::string freshToken();

// By the command line, else by the environment: the token itself, or @FILE whose first line it is.
// Empty: nobody gave one. A short one is an error, as a stranger who saw one proof would try them all.
Result<std::string> givenToken(const std::string& option);

// The key of its proofs, with the job's secret mixed in where WEFT_SECRET names one.
using TokenKey = Key256;
TokenKey keyOf(const std::string& token, const Protection& protection = {});

}  // namespace weft::netdriver
