// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "src/base/printable.h"
#include "src/base/shared_folder.h"
#include "src/stats/profile.h"
#include "tools/json/reader.h"
#include "tools/report/run.h"

// A run by the profiles that its processes wrote at their end. The writer of a file is not trusted.
namespace weft::report {

namespace {

namespace fs = std::filesystem;

constexpr double kMostCounted = 1e18;

Result<double> numberOf(const JsonNode& node, const char* name) {
  TRY(const JsonNode member, node.member(name));
  TRY(const double number, member.number());
  if (!(number >= 0)) return member.complaint("must not be below 0");
  return number;
}

Result<double> secondsOf(const JsonNode& node, const char* name) {
  TRY(const double nanoseconds, numberOf(node, name));
  return nanoseconds * kSecondsOfNanosecond;
}

Result<std::string> textOf(const JsonNode& node, const char* name) {
  TRY(const JsonNode member, node.member(name));
  return member.text();
}

Result<JsonNode> listOf(const JsonNode& node, const char* name) {
  TRY(JsonNode member, node.member(name));
  if (!member.isArray()) return member.complaint("must be a list");
  return member;
}

Result<std::vector<double>> rowOf(const JsonNode& node, size_t length) {
  if (!node.isArray() || node.size() != length)
    return node.complaint("must be a list of " + std::to_string(length) + " numbers");
  std::vector<double> row;
  for (size_t i = 0; i < length; i++) {
    TRY(const double number, node.element(i).number());
    if (!(number >= 0 && number < kMostCounted)) return node.element(i).complaint("must be from 0 to 1e18");
    row.push_back(number);
  }
  return row;
}

Result<stats::OneSidedSum> oneSidedOf(const JsonNode& node) {
  stats::OneSidedSum sum;
  for (const stats::OneSidedField& field : stats::kOneSidedFields) {
    TRY(const double number, numberOf(node, field.name));
    if (number >= kMostCounted) return node.complaint("must be below 1e18");
    sum.*field.sum = static_cast<uint64_t>(number);
  }
  return sum;
}

Result<Flow> flowOf(const JsonNode& node) {
  Flow flow;
  TRY(const std::string direction, textOf(node, "direction"));
  flow.kind = direction == "send" ? Kind::send : Kind::receive;
  TRY(flow.device, textOf(node, "device"));
  TRY(flow.peer, textOf(node, "peer"));
  flow.peer = flow.peer.substr(0, flow.peer.find(" ("));  // without its address
  TRY(flow.comms, numberOf(node, "comms"));
  TRY(flow.busySeconds, secondsOf(node, "busy_ns"));
  TRY(flow.waitSeconds, secondsOf(node, "wait_ns"));
  TRY(flow.waits, numberOf(node, "waits"));
  TRY(const JsonNode sizes, listOf(node, "sizes"));
  for (size_t i = 0; i < sizes.size(); i++) {
    TRY(const std::vector<double> row, rowOf(sizes.element(i), 5));
    SizeSum& sum = flow.sizes[stats::sizeClassOf(static_cast<uint64_t>(row[0]))];
    sum += {row[1], row[2], row[3], row[4] * kSecondsOfNanosecond};
  }
  TRY(const JsonNode latency, listOf(node, "latency"));
  for (size_t i = 0; i < latency.size(); i++) {
    TRY(const std::vector<double> row, rowOf(latency.element(i), 2));
    flow.latency.addUpTo(static_cast<uint64_t>(row[0]), static_cast<uint64_t>(row[1]));
  }
  if (node.has("one_sided")) {
    TRY(const JsonNode oneSided, node.member("one_sided"));
    TRY(flow.oneSided, oneSidedOf(oneSided));
  }
  return flow;
}

Result<MemoryUse> memoryOf(const JsonNode& node) {
  MemoryUse use;
  TRY(use.device, textOf(node, "device"));
  TRY(use.hits, numberOf(node, "hits"));
  TRY(use.misses, numberOf(node, "misses"));
  TRY(use.evictions, numberOf(node, "evictions"));
  TRY(use.bytes, numberOf(node, "bytes"));
  TRY(use.seconds, secondsOf(node, "ns"));
  return use;
}

Result<RailUse> railOf(const JsonNode& node) {
  RailUse use;
  TRY(use.device, textOf(node, "device"));
  TRY(use.rail, textOf(node, "rail"));
  TRY(use.writes, numberOf(node, "writes"));
  TRY(use.bytes, numberOf(node, "bytes"));
  TRY(use.bytesAgain, numberOf(node, "bytes_again"));
  return use;
}

Result<ThreadUse> threadOf(const JsonNode& node) {
  ThreadUse use;
  TRY(use.name, textOf(node, "name"));
  TRY(use.seconds, secondsOf(node, "cpu_ns"));
  return use;
}

// Each element of a list by such a function.
template <class T>
Status readList(const JsonNode& node, const char* name, Result<T> (*one)(const JsonNode&),
                std::vector<T>* all) {
  TRY(const JsonNode list, listOf(node, name));
  for (size_t i = 0; i < list.size(); i++) {
    TRY(T element, one(list.element(i)));
    all->push_back(std::move(element));
  }
  return {};
}

Result<Process> processOf(const JsonNode& node) {
  TRY(const double version, numberOf(node, "weft_profile"));
  if (version != stats::kProfileVersion)
    return node.complaint("is of another version of the format; use the weft that wrote it");
  Process process;
  TRY(const std::string place, textOf(node, "place"));
  TRY(const double pid, numberOf(node, "pid"));
  process.name = place + " pid " + std::to_string(static_cast<int64_t>(pid));
  TRY(process.begun, secondsOf(node, "begun_unix_ns"));
  TRY(process.seconds, secondsOf(node, "ns"));
  TRY(process.processorSeconds, secondsOf(node, "process_cpu_ns"));
  TRY(readList(node, "flows", flowOf, &process.flows));
  TRY(readList(node, "memory", memoryOf, &process.memory));
  if (node.has("rails")) TRY(readList(node, "rails", railOf, &process.rails));
  TRY(readList(node, "threads", threadOf, &process.threads));
  return process;
}

constexpr size_t kMostText = size_t{64} << 20;  // bytes of a profile

Result<Process> readProfile(const std::string& file, const std::string& text) {
  TRY(const JsonNode node, JsonNode::parse(file, text));
  return processOf(node);
}

// A file that the user names may be a link; one that lies in a folder may be another user's.
Result<std::string> textOfFile(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Result<std::string> textIn(const SharedFolder& folder, const std::string& name) {
  const SharedFolder::File file = folder.read(name);
  auto text = file.fd ? folder.text(name, kMostText) : std::nullopt;
  if (text) return *std::move(text);
  return Error(Code::invalidArgument, "reading a profile",
               printable(name) + ": " + sharedFileWords(file.error));
}

}  // namespace

Result<Run> readProfileRun(const std::string& path) {
  Run run;
  run.name = path;
  run.source = Source::profile;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    TRY(const std::string text, textOfFile(path));
    TRY(Process process, readProfile(path, text));
    run.processes.push_back(std::move(process));
    return run;
  }
  const SharedFolder folder(path);
  for (const std::string& name : folder.names(stats::kProfileEnding)) {
    TRY(const std::string text, textIn(folder, name));
    TRY(Process process, readProfile((fs::path(path) / name).string(), text));
    run.processes.push_back(std::move(process));
  }
  std::sort(run.processes.begin(), run.processes.end(),
            [](const Process& a, const Process& b) { return a.name < b.name; });
  return run;
}

}  // namespace weft::report
