// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include <CLI/CLI.hpp>

// The help and the errors of command lines, in one voice: what a value may be in words, and an error as
// "weft perf: --algos: no such option; did you mean --algo?". Used by one thread.
namespace weft {

// The exit code of a command line that does not fit.
constexpr int kUsageCode = 2;

// The command and all commands below it get weft's form of help. To be called when all options are declared.
void speakPlainly(CLI::App& app);

// The exit code. Help and versions that were asked for are shown; an error is one line on the standard error.
// `program` is what the user has called: "weft perf".
int answerFor(const CLI::App& command, const std::string& program, const CLI::App& app,
              const CLI::ParseError& error);

}  // namespace weft
