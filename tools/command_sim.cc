// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/command_sim.h"

#include "tools/command_perf.h"

// The options of weft sim, which are those of weft perf where both have them.
namespace weft {

namespace {

constexpr const char* kSimExamples = R"(Examples:
    weft sim all_reduce -n 512 --fabric p5 -b 8 -e 1G -f 8     weft perf's table, simulated
    weft sim all_reduce --algo tree -n 64 --fabric ndr -b 8 -e 64M
    weft sim connect -n 256 --fabric ethernet-100g             everybody connects to everybody
    weft sim alltoall -n 64 --fabric weft.table                numbers of weft perf --fit weft.table
    weft sim --fabric ndr --fit ndr.table                      for weft plan --cluster ndr.table

Nothing is measured: the protocol is weft's own, the network is computed.)";

}  // namespace

void declareSim(CLI::App& command, sim::Options& options) {
  command.add_option("operation", options.operation,
                     "all_reduce, all_gather, reduce_scatter, broadcast, alltoall, connect");
  command
      .add_option("-n,--ranks", options.ranks,
                  "ranks, each on a host of its own, or all on the one host of --fabric FILE")
      ->capture_default_str();
  command.add_option("--fabric", options.fabric,
                     "the network: p5, ndr, ethernet-100g, or a file that weft perf --fit wrote");
  command.add_option("--algo", options.algorithm, "ring or tree of all_reduce (default: ring)");
  command.add_option("-b,--minbytes", options.minBytes, "smallest message")
      ->transform(sizeInBytes())
      ->capture_default_str();
  command.add_option("-e,--maxbytes", options.maxBytes, "largest message")
      ->transform(sizeInBytes())
      ->capture_default_str();
  command.add_option("-f,--stepfactor", options.factor, "sizes grow by this factor")->capture_default_str();
  command.add_option("-i,--stepbytes", options.stepBytes, "sizes grow by this many bytes instead")
      ->transform(sizeInBytes());
  command.add_option("--iters", options.iterations, "iterations timed at each size")->capture_default_str();
  command.add_option("-w,--warmup_iters", options.warmup, "iterations before that")->capture_default_str();
  command.add_option(
      "--processors", options.processors,
      "that the ranks share, where FILE was measured on one host (default: as many as there were)");
  command.add_option("--peers", options.peers, "with connect: so many of each rank (default: all others)");
  command.add_option("--seed", options.seed, "of the order of what happens at one time")
      ->capture_default_str();
  command.add_option("--json", options.json, "write the results to this file; - is the standard output");
  command.add_option("--fit", options.fit,
                     "write to this file what weft perf --fit would have measured; no operation is wanted");
  command.footer(kSimExamples);
}

}  // namespace weft
