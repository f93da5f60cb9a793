// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/netdriver/bootstrap.h"
#include "tools/perf/options.h"

// That all ranks of a run are asked for the same. Where each of them was started by hand or with a command
// line of its own, they would else wait for each other until something times out, or take each other's data
// for damaged.
namespace weft::perf {

// Called by all ranks once they have found each other. The error, on every rank, names one that differs and
// in what.
Status agree(const Options& options, netdriver::Bootstrap& bootstrap);

// Between a client and its server, both of which call it: the server's options become the client's, as far as
// both must have the same. Settings that come over the network are checked as a command line is.
Status followClient(Options* options, netdriver::Bootstrap& bootstrap);

}  // namespace weft::perf
