// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/totals.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace weft::counted {

namespace {

constexpr const char* kOthers = "others";

bool isUp(const Process& process) {
  return process.state == ProcessState::runs || process.state == ProcessState::waitsInKernel;
}

void addLatency(const Comm& more, Comm* sum) {
  std::map<uint64_t, uint64_t> merged;
  for (const Comm* one : {static_cast<const Comm*>(sum), &more})
    for (const Bucket& bucket : one->latency) merged[bucket.upTo] += bucket.count;
  sum->latency.clear();
  for (const auto& [upTo, count] : merged) sum->latency.push_back({upTo, count});
}

template <size_t N>
void addAll(const std::array<uint64_t, N>& more, std::array<uint64_t, N>* sum) {
  for (size_t i = 0; i < N; i++) (*sum)[i] += more[i];
}

void add(const Comm& more, Comm* sum) {
  sum->posted += more.posted;
  for (const auto count : {&Comm::messages, &Comm::bytes, &Comm::busy, &Comm::waited, &Comm::waits,
                           &Comm::registrations, &Comm::checked, &Comm::corrupt})
    sum->*count += more.*count;
  sum->oneSided += more.oneSided;
  addAll(more.ways, &sum->ways);
  addAll(more.sizeMessages, &sum->sizeMessages);
  addAll(more.sizeBytes, &sum->sizeBytes);
  addAll(more.sizeTimed, &sum->sizeTimed);
  addAll(more.sizeTime, &sum->sizeTime);
  addLatency(more, sum);
  const bool lives = more.state == stats::LineState::live;
  sum->done += lives ? more.done : more.posted;  // nothing of a comm that is over is in flight
  sum->lanes += lives ? more.lanes : 0;
  sum->lanesUp += lives ? more.lanesUp : 0;
}

using Bytes = std::map<std::string, uint64_t>;

// The devices that have a name of their own.
std::set<std::string> namedOf(const std::vector<const Process*>& processes) {
  Bytes bytes;
  for (const Process* process : processes)
    for (const Comm& comm : process->comms) bytes[comm.device] += comm.bytes;
  std::vector<std::pair<uint64_t, std::string>> most;
  for (const auto& [device, carried] : bytes) most.emplace_back(carried, device);
  std::sort(most.rbegin(), most.rend());
  if (most.size() > kMostDevices) most.resize(kMostDevices - 1);
  std::set<std::string> named;
  for (auto& [carried, device] : most) named.insert(std::move(device));
  return named;
}

RankTotals totalOf(const std::vector<const Process*>& processes) {
  const std::set<std::string> named = namedOf(processes);
  std::map<std::pair<std::string, bool>, Flow> flows;
  RankTotals total;
  total.job = processes.front()->job;
  total.rank = rankOf(*processes.front());
  total.user = processes.front()->user;
  total.begun = processes.front()->begun;
  for (const Process* process : processes) {
    total.up = total.up || isUp(*process);
    total.beat = std::max(total.beat, process->beat);
    total.begun = std::min(total.begun, process->begun);
    total.now = std::max(total.now, process->now);
    for (const Comm& comm : process->comms) {
      const std::string device = named.contains(comm.device) ? comm.device : kOthers;
      Flow& flow = flows[{device, comm.sends}];
      flow.device = device;
      flow.sends = comm.sends;
      flow.comms += comm.state == stats::LineState::live ? 1 : 0;
      add(comm, &flow.sum);
    }
  }
  for (auto& [key, flow] : flows) total.flows.push_back(std::move(flow));
  return total;
}

}  // namespace

std::string rankOf(const Process& process) {
  const std::string& place = process.presence.place;
  const size_t on = place.find(" on ");
  if (on == std::string::npos) return {};
  constexpr std::string_view kRank = "rank ";
  return place.starts_with(kRank) ? place.substr(kRank.size(), on - kRank.size()) : place.substr(0, on);
}

std::vector<RankTotals> totalsOf(const std::vector<Process>& processes) {
  std::map<std::tuple<std::string, std::string, uint32_t>, std::vector<const Process*>> ranks;
  for (const Process& process : processes)
    ranks[{process.job, rankOf(process), process.user}].push_back(&process);
  std::vector<RankTotals> totals;
  for (auto& [key, ofRank] : ranks) {
    const auto gone = [](const Process* one) { return one->state == ProcessState::gone; };
    if (!std::all_of(ofRank.begin(), ofRank.end(), gone)) std::erase_if(ofRank, gone);
    totals.push_back(totalOf(ofRank));
  }
  return totals;
}

}  // namespace weft::counted
