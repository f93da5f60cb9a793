// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/agreement.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "tools/perf/operation.h"

namespace weft::perf {

namespace {

std::string operationOf(const Options& o) {
  if (o.checksCluster()) return "--check-cluster";
  const auto operation = findOperation(o.operation, o.algorithm);
  return fmt::format("{} ({})", o.operation, operation ? (*operation)->algorithm : o.algorithm);
}

// All that decides which messages there are, of which size and with which contents. Not where results go,
// which is rank 0's affair, nor which plugin, device and threads a rank has: machines may differ.
std::vector<std::string> commonOptions(const Options& o) {
  return {fmt::format("version {}", WEFT_VERSION),
          operationOf(o),
          fmt::format("--cluster-bytes {}", o.clusterBytes),
          fmt::format("--minbytes {}", o.minBytes),
          fmt::format("--maxbytes {}", o.maxBytes),
          fmt::format("--stepfactor {}", o.factor),
          fmt::format("--stepbytes {}", o.stepBytes),
          fmt::format("--iters {}", o.iterations),
          fmt::format("--warmup_iters {}", o.warmup),
          fmt::format("--check {}", o.check),
          fmt::format("--datatype {}", o.type),
          fmt::format("--op {}", o.redop),
          fmt::format("--root {}", o.root),
          fmt::format("--channels {}", o.channels),
          fmt::format("--comms {}", o.communicators),
          fmt::format("--buffsize {}", o.bufferBytes),
          fmt::format("--p2p-chunk {}", o.p2pChunkBytes),
          fmt::format("--group {}", o.group),
          o.compare.empty() ? "no --compare" : "--compare",
          fmt::format("--rounds {}", o.rounds)};
}

// Rank 0's, a line each.
Result<std::vector<std::string>> ofRoot(const std::vector<std::string>& mine,
                                        netdriver::Bootstrap& bootstrap) {
  std::string text = fmt::format("{}", fmt::join(mine, "\n"));
  uint64_t length = text.size();
  TRY(bootstrap.fromRoot(std::as_writable_bytes(std::span(&length, 1))));
  text.resize(length);
  TRY(bootstrap.fromRoot(std::as_writable_bytes(std::span(text))));
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  lines.resize(mine.size());  // of another version, which the first line says
  return lines;
}

Error disagreement(std::string detail) {
  return {Code::config, "rendezvous", std::move(detail)};
}

}  // namespace

Status agree(const Options& options, netdriver::Bootstrap& bootstrap) {
  const std::vector<std::string> mine = commonOptions(options);
  TRY(const auto root, ofRoot(mine, bootstrap));
  const auto at =
      static_cast<size_t>(std::mismatch(mine.begin(), mine.end(), root.begin()).first - mine.begin());
  TRY(const auto all, bootstrap.gatherValues(uint64_t{at}));  // before anyone leaves, so that all know
  if (at < mine.size())
    return disagreement(
        fmt::format("this is rank {} with {}, but rank 0 has {}: all ranks need the same options",
                    bootstrap.rank(), mine[at], root[at]));
  const auto other =
      std::find_if(all.begin(), all.end(), [&](uint64_t where) { return where < mine.size(); });
  if (other == all.end()) return {};
  return disagreement(fmt::format("rank {} was started without {}: all ranks need the same options",
                                  other - all.begin(), mine[*other]));
}

}  // namespace weft::perf
