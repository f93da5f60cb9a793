// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <string_view>

#include "tools/netdriver/bootstrap.h"
#include "tools/perf/options.h"

// Where this process stands among the ranks, when a launcher started it. One thread.
namespace weft::perf {

// From our own launcher's options, or from the environment that torchrun, Open MPI, PMI or Slurm leaves. size
// 0: nobody started us as a rank. An error if nothing says where rank 0 is.
Result<netdriver::Place> findPlace(const Options& options);

// The first host of a Slurm node list: "rack1-node007" of "rack1-node[007-010,012],login1" (scontrol(1),
// "show hostnames"). Empty if the text is no such list.
std::string firstHost(std::string_view nodeList);

}  // namespace weft::perf
