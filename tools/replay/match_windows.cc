// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "tools/replay/match.h"
#include "tools/replay/pattern.h"
#include "tools/trace/show/print.h"

// The puts of a job, and where they go: which window of another rank one names, the bytes it brings, and
// what has to be there when the window is given up. A trace has no waits for signals, so those are computed.
namespace weft::replay {

namespace {

using trace::Kind;
namespace at = trace::at;

struct Range {
  uint64_t memory = 0;  // of the rank that owns it
  uint64_t begin = 0;
  uint64_t end = 0;
  bool meets(const Range& other) const {
    return memory == other.memory && begin < other.end && other.begin < end;
  }
  bool operator==(const Range&) const = default;
};

// Bytes that come to a rank, in the order of the calls of the rank they come from.
struct Arrival {
  size_t from = 0;
  Range range;
  Op* op = nullptr;   // null: the rank's own get, or another's
  Op* get = nullptr;  // of the rank's own get
  Range read;         // that another gets from
  bool signals = false;
  Range word;
  uint64_t sum = 0;  // of all signals of that rank to that word, this one included
};

struct Member {
  Queue* queue = nullptr;
  std::vector<uint64_t> windows;  // by the order of their registration, which is the same on all ranks
  std::map<uint64_t, size_t> order;
  std::vector<Arrival> arrivals;
};

class Group {
 public:
  Group(Plan* plan, const std::vector<Queue*>& queues) : plan_(plan) {
    for (Queue* queue : queues) members_.push_back({queue, {}, {}, {}});
  }

  Status run() {
    for (Member& member : members_) findWindows(&member);
    for (size_t rank = 0; rank < members_.size(); ++rank) TRY(findArrivals(rank));
    for (Member& member : members_) setAside(&member);
    for (Member& member : members_) chooseBytes(&member);
    for (Member& member : members_) findLandings(&member);
    return {};
  }

 private:
  static Error lie(const Member& member, const Op& op, const char* what) {
    return Error(Code::invalidArgument, "replay",
                 fmt::format("{}: {}: {}", member.queue->name(), what, trace::describe(*op.event)));
  }

  static void findWindows(Member* member) {
    for (const Op& op : member->queue->ops) {
      if (op.event->kind != Kind::regMrSym || op.event->result != 0) continue;
      member->order[(*op.event)[at::kMemory]] = member->windows.size();
      member->windows.push_back((*op.event)[at::kMemory]);
    }
  }

  // A range that a rank names by its own registration, on another rank.
  Result<Range> rangeOn(const Member& from, const Member& to, const Op& op, uint64_t memory, uint64_t offset,
                        uint64_t bytes) const {
    const auto order = from.order.find(memory);
    if (order == from.order.end() || order->second >= to.windows.size())
      return lie(from, op, "names a window that the other rank has not; give the traces of all ranks");
    const uint64_t theirs = to.windows[order->second];
    const MemoryFacts& facts = plan_->ranks[static_cast<size_t>(to.queue->rank)].memories.at(theirs);
    if (offset > facts.bytes || bytes > facts.bytes - offset)
      return lie(from, op, "reaches outside of the other rank's window");
    return Range{theirs, offset, offset + bytes};
  }

  Status findArrivals(size_t rank) {
    const Member& from = members_[rank];
    std::map<std::tuple<size_t, uint64_t, uint64_t>, uint64_t> sums;  // by target, window and offset
    for (Op& op : from.queue->ops) {
      const trace::Event& event = *op.event;
      const bool puts = event.kind == Kind::iput || event.kind == Kind::iputSignal;
      if ((!puts && event.kind != Kind::iget) || event.result != 0) continue;
      const size_t target = event[at::kRmaRank];
      if (target >= members_.size()) return lie(from, op, "names a rank that is not there");
      Member& to = members_[target];
      Arrival arrival;
      arrival.from = rank;
      const trace::Part& local = event.parts[0];
      const trace::Part& remote = event.parts[1];
      if (remote.size > 0) {
        TRY(arrival.range, rangeOn(from, to, op, remote.memory, remote.offset, remote.size));
      }
      if (!puts) {
        Arrival getting;
        getting.from = rank;
        getting.read = std::exchange(arrival.range, Range{});
        to.arrivals.push_back(getting);
        arrival.range = {local.memory, local.offset, local.offset + local.size};
        arrival.get = &op;
        members_[rank].arrivals.push_back(arrival);
        continue;
      }
      arrival.op = &op;
      if (event.kind == Kind::iputSignal) {
        arrival.signals = true;
        TRY(arrival.word, rangeOn(from, to, op, event[at::kSignalMemory], event[at::kSignalOffset], 8));
        arrival.sum = sums[{target, arrival.word.memory, arrival.word.begin}] += event[at::kSignalValue];
      }
      to.arrivals.push_back(arrival);
    }
    return {};
  }

  // A wait for a signal kept a get and the puts of others to its place apart, and no trace has waits. Here
  // they would be under way at once, so the bytes of such a get come behind the window, as far into a page.
  void setAside(Member* member) {
    auto& memories = plan_->ranks[static_cast<size_t>(member->queue->rank)].memories;
    for (Arrival& got : member->arrivals) {
      if (!got.get || std::none_of(member->arrivals.begin(), member->arrivals.end(),
                                   [&](const Arrival& put) { return put.op && put.range.meets(got.range); }))
        continue;
      MemoryFacts& window = memories.at(got.range.memory);
      window.aside = (window.bytes + kWindowPage - 1) / kWindowPage * kWindowPage;
      got.get->aside = window.aside;
      got.range = {};
    }
  }

  // A put brings bytes of its own where nothing else is in their place: no other put that is under way, and
  // nothing that comes to this rank from others. Puts of the very same range at a time bring the same.
  static void chooseBytes(Member* member) {
    struct Flight {
      Range range;
      uint64_t seed;
    };
    std::map<uint64_t, Flight> flights;  // by request
    uint64_t number = 0;
    for (Op& op : member->queue->ops) {
      const trace::Event& event = *op.event;
      if (event.kind == Kind::test && event.result == 0) flights.erase(event[at::kRequest]);
      if ((event.kind != Kind::iput && event.kind != Kind::iputSignal) || event.result != 0) continue;
      const trace::Part& part = event.parts[0];
      const Range range{part.memory, part.offset, part.offset + part.size};
      Message message{seedOf(member->queue->number, member->queue->rank, ++number), 1};
      if (part.size == 0 || std::any_of(member->arrivals.begin(), member->arrivals.end(),
                                        [&](const Arrival& one) { return one.range.meets(range); }))
        message = {};
      for (const auto& [request, flight] : flights) {
        if (message.seed == 0 || !flight.range.meets(range)) continue;
        message = flight.range == range ? Message{flight.seed, 0} : Message{};
      }
      op.messages = {message};
      flights[event[at::kRequest]] = {range, message.seed};
    }
  }

  // All puts into a window are there, and all gets from it done, when the word of the next signal of the same
  // rank says so.
  static void findLandings(Member* member) {
    for (const uint64_t memory : member->windows) {
      Landing& landing = member->queue->landings[memory];
      std::map<size_t, size_t> last;  // by rank: when it reached into the window last
      for (size_t i = 0; i < member->arrivals.size(); ++i) {
        const Arrival& arrival = member->arrivals[i];
        const bool written = arrival.op && arrival.range.memory == memory;
        if (written || arrival.word.memory == memory || arrival.read.memory == memory) last[arrival.from] = i;
        if (!written) continue;
        Landed landed{seedsOf(*member, i), arrival.range.begin, arrival.range.end - arrival.range.begin,
                      arrival.from};
        if (!landed.seeds.empty()) landing.puts.push_back(std::move(landed));
      }
      for (const auto& [rank, at] : last)
        landing.certain = addSignal(*member, rank, at, &landing) && landing.certain;
    }
    for (const Arrival& arrival : member->arrivals) {
      if (!arrival.signals) continue;
      auto& words = member->queue->landings[0].words;
      words[{arrival.word.memory, arrival.word.begin}] += (*arrival.op->event)[at::kSignalValue];
    }
  }

  // The first signal of the rank that does not come before that put; false: none does.
  static bool addSignal(const Member& member, size_t rank, size_t at, Landing* landing) {
    for (; at < member.arrivals.size(); ++at) {
      const Arrival& arrival = member.arrivals[at];
      if (arrival.from != rank || !arrival.signals) continue;
      landing->words[{arrival.word.memory, arrival.word.begin}] += arrival.sum;
      return true;
    }
    return false;
  }

  // Of the last put of a rank to a place, and of its earlier ones to the very same; none where the place is
  // also another's, in part or in whole.
  static std::vector<uint64_t> seedsOf(const Member& member, size_t which) {
    const Arrival& last = member.arrivals[which];
    std::vector<uint64_t> seeds;
    for (size_t i = 0; i < member.arrivals.size(); ++i) {
      const Arrival& other = member.arrivals[i];
      if (!other.range.meets(last.range)) continue;
      const uint64_t seed = other.op ? other.op->messages[0].seed : 0;
      if (seed == 0 || other.from != last.from || i > which || !(other.range == last.range)) return {};
      seeds.push_back(seed);
    }
    return seeds;
  }

  Plan* plan_;
  std::vector<Member> members_;
};

}  // namespace

Status matchWindows(Plan* plan, const std::vector<Queue*>& group) {
  return Group(plan, group).run();
}

}  // namespace weft::replay
