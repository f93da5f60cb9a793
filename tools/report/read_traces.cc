// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "src/base/number.h"
#include "tools/report/run.h"
#include "tools/trace/reader.h"

// A run by the recorded calls of its processes. It alone has times, and so bandwidth over time.
namespace weft::report {

namespace {

using trace::Event;
namespace at = trace::at;

constexpr size_t kSlices = 160;

// A message that was sent, for the rates.
struct Sent {
  double begin = 0;  // seconds of the process's own time
  double end = 0;
  double bytes = 0;
};

struct Meaning {
  Kind kind;
  const char* operation;  // null: as NCCL has told before
};

std::optional<Meaning> meaningOf(trace::Kind kind) {
  switch (kind) {
    case trace::Kind::isend:
      return Meaning{Kind::send, nullptr};
    case trace::Kind::irecv:
      return Meaning{Kind::receive, nullptr};
    case trace::Kind::iflush:
      return Meaning{Kind::flush, ""};
    case trace::Kind::iallreduce:
      return Meaning{Kind::offload, "allreduce"};
    case trace::Kind::iallgather:
      return Meaning{Kind::offload, "allgather"};
    case trace::Kind::ireducescatter:
      return Meaning{Kind::offload, "reducescatter"};
    default:
      return std::nullopt;
  }
}

// The operation of NCCL that a hint tells, by the bit of its number. A hint of several is of none.
std::string operationOf(uint64_t bits) {
  constexpr const char* kNames[] = {"broadcast", "reduce",   "allgather", "reducescatter",
                                    "allreduce", "sendrecv", "sendrecv",  "sendrecv",
                                    "alltoall",  "scatter",  "gather"};
  if (!std::has_single_bit(bits)) return {};
  const auto bit = static_cast<size_t>(std::countr_zero(bits));
  return bit < std::size(kNames) ? kNames[bit] : "";
}

// The size of an all-reduce is that of its vector, of the others that of the window. Receives are as large as
// `test` says, and so have none here.
std::vector<double> sizesOf(const Event& event) {
  if (event.kind == trace::Kind::iallgather) return {static_cast<double>(event[at::kGatherWindow + 2])};
  if (event.kind == trace::Kind::ireducescatter) return {static_cast<double>(event[at::kScatterWindow + 2])};
  std::vector<double> sizes;
  for (const trace::Part& part : event.parts) sizes.push_back(static_cast<double>(part.size));
  if (event.kind == trace::Kind::iallreduce) sizes.resize(1);
  return sizes;
}

std::string processName(const trace::Trace& trace) {
  const std::string rank = trace.aboutOf("rank");
  const std::string place = trace.aboutOf("host") + " pid " + trace.aboutOf("pid");
  return rank.empty() ? place : "rank " + rank + " on " + place;
}

double beginOf(const trace::Trace& trace) {
  return static_cast<double>(parseNumber<uint64_t>(trace.aboutOf("start_unix_ns")).value_or(0)) *
         kSecondsOfNanosecond;
}

// The ends of connections, which all traces together tell: the hash of a handle names a listener.
struct Meetings {
  std::map<uint64_t, std::string> listeners;                                // by hash
  std::map<uint64_t, std::vector<std::pair<double, std::string>>> dialers;  // by hash: when, and who

  void note(const trace::Trace& trace) {
    const std::string name = processName(trace);
    for (const Event& event : trace.events) {
      if (event.result != 0) continue;
      if (event.kind == trace::Kind::listen) listeners[event[at::kListenHandle]] = name;
      if (event.kind != trace::Kind::connect) continue;
      const double asked = static_cast<double>(event.time - event[at::kConnectWaited]) * kSecondsOfNanosecond;
      dialers[event[at::kConnectHandle]].emplace_back(beginOf(trace) + asked, name);
    }
  }
  void sort() {
    for (auto& [handle, all] : dialers) std::stable_sort(all.begin(), all.end());
  }
};

// Takes the events of one process. Its flows are those of each device, peer, kind and operation.
class Reader {
 public:
  Reader(const trace::Trace& trace, const Meetings& meetings) : trace_(trace), meetings_(meetings) {}

  Process read() {
    Process process;
    process.name = processName(trace_);
    process.begun = beginOf(trace_);
    for (const Event& event : trace_.events) {
      process.seconds =
          std::max(process.seconds, static_cast<double>(event.time + event.duration) * kSecondsOfNanosecond);
      if (event.result == 0) take(event);
    }
    for (auto& [key, flow] : flows_) process.flows.push_back(std::move(flow));
    if (memory_.misses > 0) process.memory.push_back(memory_);
    return process;
  }
  std::vector<Sent> takeSent() { return std::move(sent_); }

 private:
  struct End {
    std::string device;
    std::string peer;
  };
  struct Open {
    Flow* flow;
    uint64_t posted;
    std::vector<double> sizes;
  };

  void take(const Event& event) {
    if (event.kind == trace::Kind::test) return done(event);
    if (event.kind == trace::Kind::properties) devices_[event[0]] = std::string(event.text);
    if (event.kind == trace::Kind::setNetAttr)
      operations_[event.thread] = operationOf(event[kOperationOfHint]);
    if (event.kind == trace::Kind::regMr || event.kind == trace::Kind::regMrDmaBuf) registered(event);
    if (const auto meaning = meaningOf(event.kind))
      post(event, *meaning);
    else
      meet(event);
  }

  void meet(const Event& event) {
    if (event.kind == trace::Kind::listen)
      listens_[event[at::kListenComm]] = {event[at::kListenHandle], event[at::kDevice]};
    if (event.kind == trace::Kind::connect) {
      const auto found = meetings_.listeners.find(event[at::kConnectHandle]);
      ends_[event[at::kConnectComm]] = {devices_[event[at::kDevice]],
                                        found == meetings_.listeners.end() ? "not traced" : found->second};
    }
    if (event.kind == trace::Kind::accept) {
      const auto [handle, device] = listens_[event[at::kAcceptListen]];
      ends_[event[at::kAcceptComm]] = {devices_[device], dialer(handle)};
    }
    if (event.kind == trace::Kind::collConnect) ends_[event[at::kCollComm]] = {"", "the network"};
  }

  // Connections are accepted in the order in which they were asked for.
  std::string dialer(uint64_t handle) {
    const auto found = meetings_.dialers.find(handle);
    const size_t turn = accepted_[handle]++;
    if (found == meetings_.dialers.end() || turn >= found->second.size()) return "not traced";
    return found->second[turn].second;
  }

  void post(const Event& event, const Meaning& meaning) {
    const uint64_t comm = event[at::kComm];
    const std::string operation = meaning.operation ? meaning.operation : operations_[event.thread];
    const End& end = ends_[comm];
    Flow& flow = flows_[{meaning.kind, operation, end.device, end.peer}];
    flow.kind = meaning.kind;
    flow.operation = operation;
    flow.device = end.device;
    flow.peer = end.peer;
    if (comms_.insert({&flow, comm}).second) flow.comms++;
    if (meaning.kind != Kind::flush && event[at::kNotNow] > 0) {
      flow.waits++;
      flow.waitSeconds += static_cast<double>(event[at::kWaited]) * kSecondsOfNanosecond;
    }
    const bool receives = meaning.kind == Kind::receive;
    open_[event[at::kRequest]] = {&flow, event.time, receives ? std::vector<double>() : sizesOf(event)};
  }

  void done(const Event& event) {
    const auto found = open_.find(event[at::kRequest]);
    if (found == open_.end()) return;
    const Open& open = found->second;
    const uint64_t took = event.time > open.posted ? event.time - open.posted : 0;
    std::vector<double> sizes = open.sizes;
    if (open.flow->kind == Kind::receive)
      for (const trace::Part& part : event.parts) sizes.push_back(static_cast<double>(part.size));
    for (const double size : sizes) {
      SizeSum& sum = open.flow->sizes[stats::sizeClassOf(static_cast<uint64_t>(size))];
      sum += {1, size, 1, static_cast<double>(took) * kSecondsOfNanosecond};
      open.flow->latency.add(took);
      if (open.flow->kind == Kind::send)
        sent_.push_back({static_cast<double>(open.posted) * kSecondsOfNanosecond,
                         static_cast<double>(event.time) * kSecondsOfNanosecond, size});
    }
    open_.erase(found);
  }

  // The recorder sees calls, not what the plugin finds in its cache: each is counted as made anew.
  void registered(const Event& event) {
    memory_.misses++;
    memory_.bytes += static_cast<double>(event[at::kBytes]);
    memory_.seconds += static_cast<double>(event.duration) * kSecondsOfNanosecond;
  }

  static constexpr size_t kOperationOfHint = 9;

  const trace::Trace& trace_;
  const Meetings& meetings_;
  std::map<std::tuple<Kind, std::string, std::string, std::string>, Flow> flows_;
  std::set<std::pair<const Flow*, uint64_t>> comms_;
  std::map<uint32_t, std::string> operations_;  // by thread
  std::map<uint64_t, std::string> devices_;
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> listens_;  // by comm: hash of the handle, and device
  std::map<uint64_t, size_t> accepted_;
  std::map<uint64_t, End> ends_;
  std::map<uint64_t, Open> open_;
  MemoryUse memory_{"all", 0, 0, 0, 0, 0};
  std::vector<Sent> sent_;
};

// Bytes of a message are spread evenly over its time.
void spread(const Sent& sent, double first, double slice, std::vector<double>* rates) {
  const double end = std::max(sent.end, sent.begin + 1e-9);
  const double each = sent.bytes / (end - sent.begin);
  const auto of = [&](double time) {
    return std::min(rates->size() - 1, static_cast<size_t>(std::max(0.0, (time - first) / slice)));
  };
  for (size_t i = of(sent.begin); i <= of(end); i++) {
    const double from = std::max(sent.begin, first + slice * static_cast<double>(i));
    const double to = std::min(end, first + slice * static_cast<double>(i + 1));
    (*rates)[i] += std::max(0.0, to - from) * each / slice;
  }
}

// From the first send of any process to the end of the last, by the clocks of their hosts.
Rates ratesOf(const std::vector<std::vector<Sent>>& all) {
  Rates rates;
  double first = HUGE_VAL;
  double last = -HUGE_VAL;
  for (const auto& process : all)
    for (const Sent& sent : process) {
      first = std::min(first, sent.begin);
      last = std::max(last, sent.end);
    }
  if (!(last > first)) return rates;
  rates.sliceSeconds = (last - first) / static_cast<double>(kSlices);
  rates.all.assign(kSlices, 0);
  for (const auto& process : all) {
    rates.processes.emplace_back(kSlices, 0.0);
    for (const Sent& sent : process) spread(sent, first, rates.sliceSeconds, &rates.processes.back());
    for (size_t i = 0; i < kSlices; i++) rates.all[i] += rates.processes.back()[i];
  }
  return rates;
}

}  // namespace

Result<Run> readTraceRun(const std::string& path) {
  TRY(const std::vector<std::string> files, trace::findTraces({path}));
  std::vector<trace::Trace> traces;
  Meetings meetings;
  for (const std::string& file : files) {
    TRY(trace::Trace trace, trace::readTrace(file));
    meetings.note(trace);
    traces.push_back(std::move(trace));
  }
  meetings.sort();
  Run run;
  run.name = path;
  run.source = Source::trace;
  std::vector<std::vector<Sent>> sent;
  double origin = HUGE_VAL;
  for (const trace::Trace& trace : traces) origin = std::min(origin, beginOf(trace));
  for (const trace::Trace& trace : traces) {
    Reader reader(trace, meetings);
    run.processes.push_back(reader.read());
    sent.push_back(reader.takeSent());
    const double late = run.processes.back().begun - origin;
    for (Sent& one : sent.back()) one.begin += late, one.end += late;
    run.notes.insert(run.notes.end(), trace.notes.begin(), trace.notes.end());
  }
  run.rates = ratesOf(sent);
  return run;
}

}  // namespace weft::report
