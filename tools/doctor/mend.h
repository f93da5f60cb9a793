// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <string>

#include "tools/doctor/finding.h"

// The words of a mend. Every command that `weft doctor` shows or writes into a script is made here, from a
// text of this program and arguments of known types in a shell's quotes. Pure; any thread.
namespace weft::doctor {

// A cure's name on the wire, and the cure of a name; nothing: this version has none of that name.
const char* nameOf(Cure cure);
std::optional<Cure> cureOf(const std::string& name);

// True where the arguments are those that the mend has, each of its type. Mends that another host
// sends are kept only then.
bool isWhole(const Mend& mend);

// In one line for a reader: a command and its comment, NAME=VALUE, or a sentence. Empty: nobody mends it.
std::string mendText(const Mend& mend);

// The command line for a script; nothing where root of this host has nothing to run as it stands.
std::optional<std::string> commandOf(const Mend& mend);

}  // namespace weft::doctor
