// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <string_view>

#include "tools/netdriver/bootstrap.h"
#include "tools/perf/options.h"

// Where this process stands among the ranks, when a launcher started it. Used by one thread.
namespace weft::perf {

// From our own launcher's options, or from the environment that torchrun, Open MPI, PMI or Slurm leaves. size
// 0: nobody started us as a rank. An error names the variable that does not fit, or says that nothing tells
// where rank 0 is.
Result<netdriver::Place> findPlace(const Options& options);

// The variables by which a launcher of several ranks names this process, the first of them, where -n makes
// nobody read it: "RANK=0 and WORLD_SIZE=4". Empty if there is nothing to say.
std::string ignoredLauncher();

// The first host of a Slurm node list: "rack1-node007" of "rack1-node[007-010,012],login1" (scontrol(1),
// "show hostnames"). Empty if the text is no such list.
std::string firstHost(std::string_view nodeList);

}  // namespace weft::perf
