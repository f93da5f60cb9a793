// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <filesystem>

#include "tools/report/run.h"
#include "tools/stats/reader.h"

// A run by the counters of its processes, running or dead.
namespace weft::report {

namespace {

double secondsOf(uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * kSecondsOfNanosecond;
}

Flow flowOf(const counted::Comm& comm) {
  Flow flow;
  flow.kind = comm.sends ? Kind::send : Kind::receive;
  flow.device = comm.device;
  flow.peer = comm.peer.substr(0, comm.peer.find(" ("));  // without its address
  flow.comms = 1;
  flow.busySeconds = secondsOf(comm.busy);
  flow.waitSeconds = secondsOf(comm.waited);
  flow.waits = static_cast<double>(comm.waits);
  for (size_t i = 0; i < stats::kSizeClasses; i++) {
    flow.sizes[i].messages = static_cast<double>(comm.sizeMessages[i]);
    flow.sizes[i].bytes = static_cast<double>(comm.sizeBytes[i]);
    flow.sizes[i].timed = static_cast<double>(comm.sizeTimed[i]);
    flow.sizes[i].seconds = secondsOf(comm.sizeTime[i]);
  }
  flow.oneSided = comm.oneSided;
  for (const counted::Bucket& bucket : comm.latency) flow.latency.addUpTo(bucket.upTo, bucket.count);
  return flow;
}

Process processOf(const counted::Process& counted) {
  Process process;
  process.name = counted.presence.place + " pid " + std::to_string(counted.presence.pid);
  process.begun = secondsOf(counted.begun);
  process.seconds = secondsOf(counted.now > counted.begun ? counted.now - counted.begun : 0);
  for (const counted::Comm& comm : counted.comms) process.flows.push_back(flowOf(comm));
  return process;
}

}  // namespace

Result<Run> readCountersRun(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  counted::Where where;
  where.folder = folder ? path : fs::path(path).parent_path().string();
  if (where.folder.empty()) where.folder = ".";
  Run run;
  run.name = path;
  std::vector<std::string> unread;
  for (const counted::Process& process : counted::read(where, &unread)) {
    if (!folder && !fs::equivalent(process.file, path, ignored)) continue;
    run.processes.push_back(processOf(process));
    if (process.leftOut > 0)
      run.notes.push_back(run.processes.back().name + " had " + std::to_string(process.leftOut) +
                          " comms for which there was no room; they are missing here.");
  }
  if (run.processes.empty())
    return Error(Code::invalidArgument, "reading counters",
                 unread.empty() ? path + ": there are no counters" : unread.front());
  for (const std::string& line : unread) run.notes.push_back(line + ".");
  return run;
}

}  // namespace weft::report
