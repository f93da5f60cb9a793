// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/agreement.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <sstream>
#include <variant>

#include <fmt/format.h>

#include "src/base/printable.h"
#include "tools/netdriver/net.h"
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
          fmt::format("--duration {}", o.duration),
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

Error disagreement(std::string detail) {
  return {Code::config, "rendezvous", std::move(detail)};
}

constexpr size_t kMostText = 16384;  // bytes of options

// Rank 0's, a line each.
Result<std::vector<std::string>> ofRoot(const std::vector<std::string>& mine,
                                        netdriver::Bootstrap& bootstrap) {
  std::string text = fmt::format("{}", fmt::join(mine, "\n"));
  uint64_t length = text.size();
  TRY(bootstrap.fromRoot(std::as_writable_bytes(std::span(&length, 1))));
  if (length > kMostText) return disagreement("rank 0 announces more options than there are");
  text.resize(length);
  TRY(bootstrap.fromRoot(std::as_writable_bytes(std::span(text))));
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(printable(line));
  lines.resize(mine.size());  // of another version, which the first line says
  return lines;
}

// The settings that a client tells its server, a line each: "NAME VALUE".
struct SharedText {
  const char* name;
  std::string Options::*member;
};
constexpr SharedText kTexts[] = {{"operation", &Options::operation},
                                 {"algorithm", &Options::algorithm},
                                 {"type", &Options::type},
                                 {"redop", &Options::redop}};
struct SharedNumber {
  const char* name;
  std::variant<int Options::*, uint64_t Options::*, double Options::*> member;
  double least;
  double most;
};
constexpr double kMostBytes = 1ULL << 34;
constexpr SharedNumber kNumbers[] = {{"minBytes", &Options::minBytes, 0, kMostBytes},
                                     {"maxBytes", &Options::maxBytes, 0, kMostBytes},
                                     {"stepBytes", &Options::stepBytes, 0, kMostBytes},
                                     {"factor", &Options::factor, 1, 1e9},
                                     {"iterations", &Options::iterations, 1, 1e9},
                                     {"duration", &Options::duration, 0, 1e6},
                                     {"warmup", &Options::warmup, 0, 1e9},
                                     {"check", &Options::check, 0, 1},
                                     {"root", &Options::root, 0, 1},
                                     {"channels", &Options::channels, 1, 64},
                                     {"communicators", &Options::communicators, 1, 256},
                                     {"threads", &Options::threads, 0, 256},
                                     {"bufferBytes", &Options::bufferBytes, 8192, 1 << 30},
                                     {"p2pChunkBytes", &Options::p2pChunkBytes, 1024, 1 << 30},
                                     {"group", &Options::group, 1, netdriver::kMaxGroup}};

std::string textOf(const Options& options) {
  std::string text;
  for (const SharedText& one : kTexts) text += fmt::format("{} {}\n", one.name, options.*one.member);
  for (const SharedNumber& one : kNumbers)
    std::visit([&](auto member) { text += fmt::format("{} {}\n", one.name, options.*member); }, one.member);
  return text;
}

Error unfit(const std::string& line) {
  return disagreement(
      fmt::format("the client asks for \"{}\", which this version does not know or allow", printable(line)));
}

Status take(const std::string& line, Options* options) {
  const size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  const std::string value = space == std::string::npos ? std::string() : line.substr(space + 1);
  for (const SharedText& one : kTexts) {
    if (name != one.name) continue;
    options->*one.member = value;
    return {};
  }
  for (const SharedNumber& one : kNumbers) {
    if (name != one.name) continue;
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool whole = error == std::errc() && end == value.data() + value.size();
    if (!whole || !(number >= one.least && number <= one.most)) return unfit(line);
    std::visit(
        [&](auto member) {
          options->*member = static_cast<std::decay_t<decltype(options->*member)>>(number);
        },
        one.member);
    return {};
  }
  return unfit(line);
}

}  // namespace

Status followClient(Options* options, netdriver::Bootstrap& bootstrap) {
  if (bootstrap.rank() == 0) {
    const std::string text = textOf(*options);
    return bootstrap.tell(1, std::as_bytes(std::span(text)));
  }
  TRY(const auto bytes,
      bootstrap.hear(0, std::chrono::steady_clock::now() + std::chrono::seconds(30), kMostText));
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  for (std::string line; std::getline(lines, line);) TRY(take(line, options));
  TRY(validate(*options));
  TRY(parseTypes(options->type));
  TRY(parseRedOps(options->redop));
  return {};
}

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
