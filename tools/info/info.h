// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <CLI/CLI.hpp>

// `weft info`: what weft finds on this machine and would tell NCCL, and its settings. addInfo declares the
// subcommand; when it is the one that was asked for, its callback runs it and sets *exitCode (0: there is
// something for NCCL to use, or only settings were asked for). One thread.
namespace weft::info {

void addInfo(CLI::App& app, int* exitCode);

}  // namespace weft::info
