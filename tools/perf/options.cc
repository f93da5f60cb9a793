// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/options.h"

#include <algorithm>
#include <cmath>

#include "tools/perf/operation.h"

namespace weft::perf {

namespace {

// Less is no stream: its messages are smaller than 128 KiB only where there would not be enough of them.
constexpr uint64_t kLeastClusterBytes = uint64_t{64} << 10;
constexpr uint64_t kMostClusterBytes = uint64_t{1} << 40;
// Less is millions of sizes, and a run without an end.
constexpr double kLeastFactor = 1.01;

// The format of a plot; nothing where that is not SVG.
bool isSvg(const std::string& path) {
  const size_t dot = path.find_last_of("./");
  return path == "-" || dot == std::string::npos || path[dot] == '/' || path.substr(dot) == ".svg";
}

}  // namespace

int Options::documentsShown() const {
  return static_cast<int>((json == "-") + (csv == "-") + (plot == "-") + (fit == "-"));
}

Status validate(const Options& options) {
  const auto bad = [](const char* what) { return Error(Code::invalidArgument, "command line", what); };
  if (!options.fit.empty() && !options.plugin.empty()) return bad("--fit measures weft, not --plugin");
  if (!options.fit.empty() && options.merge)
    return bad("--fit measures one device, not those of --merge as one");
  if (options.documentsShown() > 1) return bad("only one of --json, --csv, --plot and --fit can be -");
  if (!std::isfinite(options.slowLimit)) return bad("--slow must be a number");
  if (!options.plot.empty() && !isSvg(options.plot))
    return bad("--plot writes SVG: name the file .svg; browsers show it, and rsvg-convert makes a PNG of it");
  if (!options.replay.empty()) {
    if (!options.operation.empty() || options.checksCluster()) return bad("--replay takes no operation");
    if (!options.csv.empty() || !options.plot.empty() || !options.compare.empty())
      return bad("--replay writes no CSV and no plot, and compares no plugins");
    return {};
  }
  if (options.server && !options.client.empty()) return bad("--server and --client are two ends; choose one");
  if (options.withoutLauncher() && options.processes > 0)
    return bad("-n starts processes of its own, --server and --client do not");
  if (options.withoutLauncher() && (options.checksCluster() || !options.compare.empty()))
    return bad("--server and --client run one operation over one plugin");
  if (options.checksCluster()) {
    if (options.clusterBytes < kLeastClusterBytes || options.clusterBytes > kMostClusterBytes)
      return bad("--cluster-bytes must be from 64K to 1024G");
    if (!options.operation.empty()) return bad("--check-cluster and --fit take no operation");
    if (!options.csv.empty() || !options.plot.empty() || !options.compare.empty())
      return bad("--check-cluster and --fit write no CSV and no plot, and compare no plugins");
    return {};
  }
  if (options.operation.empty()) return bad("name an operation, --check-cluster or --replay, see --help");
  TRY(findOperation(options.operation, options.algorithm));
  if (options.minBytes > options.maxBytes) return bad("-b is larger than -e");
  if (options.stepBytes == 0 && !(options.factor >= kLeastFactor && std::isfinite(options.factor)))
    return bad("-f must be a number from 1.01 on; -i grows sizes by so many bytes");
  if (options.bufferBytes < 8 * 1024) return bad("--buffsize must be at least 8K");
  if (options.threads > options.communicators) return bad("--threads is larger than --comms");
  for (const std::string& setting : options.compareEnvironment)
    if (options.compare.empty() || setting.find('=') == std::string::npos || setting[0] == '=')
      return bad("--compare-env wants NAME=VALUE, and --compare with it");
  if (options.group > 1 && options.operation != "sendrecv") return bad("--group belongs to sendrecv");
  if (options.p2pChunkBytes < 1024) return bad("--p2p-chunk must be at least 1K");
  return {};
}

std::vector<uint64_t> messageSizes(const Options& options) {
  std::vector<uint64_t> sizes;
  uint64_t bytes = options.minBytes;
  while (bytes <= options.maxBytes) {
    sizes.push_back(bytes);
    const auto grown = static_cast<uint64_t>(std::min(static_cast<double>(bytes) * options.factor, 0x1p63));
    const uint64_t next = options.stepBytes != 0 ? bytes + options.stepBytes : grown;
    bytes = std::max(next, bytes + 1);
  }
  return sizes;
}

}  // namespace weft::perf
