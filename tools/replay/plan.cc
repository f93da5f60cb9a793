// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/plan.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "src/base/number.h"
#include "tools/replay/match.h"
#include "tools/replay/pattern.h"
#include "tools/trace/show/print.h"

namespace weft::replay {

namespace {

using trace::Event;
using trace::Kind;
namespace at = trace::at;

Error lie(const RankPlan& rank, const std::string& detail) {
  return {Code::invalidArgument, "replay", rank.trace.name + ": " + detail};
}

// Sorts one rank's events into queues.
class Sorter {
 public:
  Sorter(int rank, RankPlan* plan) : rank_(rank), plan_(plan) {}

  Status run() {
    for (const Event& event : plan_->trace.events) {
      plan_->threads = std::max(plan_->threads, event.thread + 1);
      plan_->recordedNanoseconds = std::max(plan_->recordedNanoseconds, event.time + event.duration);
      TRY(take(event));
    }
    for (const auto& [number, open] : open_) {
      open.queue->ops[open.op].neverDone = true;
      open.queue->aborted = true;
    }
    for (Queue& queue : plan_->queues)
      if (!closed_.contains(&queue)) queue.aborted = true;
    return {};
  }

 private:
  struct OpenRequest {
    Queue* queue;
    size_t op;
  };

  Queue& add(QueueKind kind, uint64_t number, uint64_t context, uint64_t device) {
    Queue& queue = plan_->queues.emplace_back();
    queue.kind = kind;
    queue.rank = rank_;
    queue.number = number;
    queue.context = context;
    queue.device = static_cast<int>(device);
    return queue;
  }

  Status take(const Event& event) {
    switch (event.kind) {
      case Kind::init:
        return takeContext(QueueKind::context, event);
      case Kind::collInit:
        return takeContext(QueueKind::collContext, event);
      case Kind::rmaInit:
        return takeContext(QueueKind::rmaContext, event);
      case Kind::finalize:
      case Kind::collFinalize:
      case Kind::rmaFinalize:
        return event[at::kContext] == 0 ? Status() : append(contexts_, event[at::kContext], event, true);
      case Kind::listen:
      case Kind::collListen:
      case Kind::rmaListen:
        return takeNew(listenerKind(event.kind), event[at::kListenComm], event[at::kContext],
                       event[at::kDevice], event);
      case Kind::connect:
        return takeNew(QueueKind::send, event[at::kConnectComm], event[at::kContext], event[at::kDevice],
                       event);
      case Kind::accept:
        return takeAccept(event);
      case Kind::collConnect:
        return takeGroupConnect(QueueKind::collListen, QueueKind::coll, event);
      case Kind::rmaConnect:
        return takeGroupConnect(QueueKind::rmaListen, QueueKind::rma, event);
      case Kind::regMr:
      case Kind::regMrDmaBuf:
      case Kind::regMrSym:
        return takeRegistration(event);
      case Kind::closeSend:
      case Kind::closeRecv:
      case Kind::closeListen:
      case Kind::closeColl:
        return event[at::kComm] == 0 ? Status() : append(comms_, event[at::kComm], event, true);
      case Kind::deregMr:
      case Kind::createContext:
      case Kind::destroyContext:
        return append(comms_, event[at::kComm], event);
      case Kind::isend:
      case Kind::irecv:
      case Kind::iflush:
      case Kind::iallreduce:
      case Kind::iallgather:
      case Kind::ireducescatter:
      case Kind::iput:
      case Kind::iputSignal:
      case Kind::iget:
      case Kind::iflushRma:
        return takePost(event);
      case Kind::test:
        return takeTest(event);
      default:
        return {};  // what asks or hints only
    }
  }

  Status takeRegistration(const Event& event) {
    if (event.result != 0) return {};
    const MemoryFacts facts{event[at::kBytes], event[at::kAddress]};
    if (!plan_->memories.emplace(event[at::kMemory], facts).second)
      return lie(*plan_, fmt::format("registers memory {} twice", event[at::kMemory]));
    if (event.kind == Kind::regMrSym) plan_->blocking.push_back(&event);
    return append(comms_, event[at::kComm], event);
  }

  // Tables before version 11 make no context.
  Status takeContext(QueueKind kind, const Event& event) {
    const uint64_t number = event[at::kContext];
    if (number == 0 || event.result != 0) return {};
    contexts_[number] = &add(kind, number, number, 0);
    return append(contexts_, number, event);
  }

  // A call that failed made nothing, and nothing of it can be repeated.
  Status takeNew(QueueKind kind, uint64_t number, uint64_t context, uint64_t device, const Event& event) {
    if (event.result != 0 || number == 0) return {};
    Queue& queue = add(kind, number, context, device);
    if (!comms_.emplace(number, &queue).second)
      return lie(*plan_, fmt::format("makes comm {} twice", number));
    return append(comms_, number, event);
  }

  Status takeAccept(const Event& event) {
    if (event.result != 0 || event[at::kAcceptComm] == 0) return {};
    const auto listener = comms_.find(event[at::kAcceptListen]);
    if (listener == comms_.end() || listener->second->kind != QueueKind::listen)
      return lie(*plan_, fmt::format("accepts on comm {}, which does not listen", event[at::kAcceptListen]));
    Queue& queue = add(QueueKind::recv, event[at::kAcceptComm], listener->second->context,
                       static_cast<uint64_t>(listener->second->device));
    queue.listener = listener->second;
    if (!comms_.emplace(event[at::kAcceptComm], &queue).second)
      return lie(*plan_, fmt::format("makes comm {} twice", event[at::kAcceptComm]));
    return append(comms_, event[at::kAcceptListen], event);
  }

  static QueueKind listenerKind(Kind kind) {
    if (kind == Kind::rmaListen) return QueueKind::rmaListen;
    return kind == Kind::listen ? QueueKind::listen : QueueKind::collListen;
  }

  Status takeGroupConnect(QueueKind listens, QueueKind made, const Event& event) {
    if (event.result != 0 || event[at::kCollComm] == 0) return {};
    const auto listener = comms_.find(event[at::kCollListen]);
    if (listener == comms_.end() || listener->second->kind != listens)
      return lie(*plan_, fmt::format("connects a group by comm {}, which does not listen for one",
                                     event[at::kCollListen]));
    Queue* const listening = listener->second;
    if (made == QueueKind::rma) plan_->blocking.push_back(&event);
    TRY(takeNew(made, event[at::kCollComm], listening->context, static_cast<uint64_t>(listening->device),
                event));
    comms_.at(event[at::kCollComm])->listener = listening;
    return {};
  }

  // True where that is posted on such a comm, with as many messages.
  static bool fits(const Event& event, QueueKind kind) {
    switch (event.kind) {
      case Kind::isend:
        return kind == QueueKind::send && event.parts.size() == 1;
      case Kind::irecv:
        return kind == QueueKind::recv;
      case Kind::iflush:
        return kind == QueueKind::recv || kind == QueueKind::coll;
      case Kind::iallreduce:
        return kind == QueueKind::coll && event.parts.size() == 2;
      case Kind::iput:
      case Kind::iputSignal:
      case Kind::iget:
      case Kind::iflushRma:
        return kind == QueueKind::rma && event.parts.size() == 2;
      default:
        return kind == QueueKind::coll && event.parts.size() >= 2;
    }
  }

  Status append(const std::map<uint64_t, Queue*>& queues, uint64_t number, const Event& event,
                bool close = false) {
    const auto found = queues.find(number);
    if (found == queues.end())
      return lie(*plan_, fmt::format("uses comm or context {} that it never made: {}", number,
                                     trace::describe(event)));
    if (closed_.contains(found->second))
      return lie(*plan_,
                 fmt::format("uses comm or context {} after its end: {}", number, trace::describe(event)));
    found->second->ops.push_back({&event, {}, false});
    if (event.result != 0) found->second->aborted = true;
    if (close) closed_.insert(found->second);
    return {};
  }

  Status takePost(const Event& event) {
    TRY(append(comms_, event[at::kComm], event));
    Queue* queue = comms_.at(event[at::kComm]);
    if (!fits(event, queue->kind)) return lie(*plan_, fmt::format("cannot be: {}", trace::describe(event)));
    // The second part of a put or a get is another rank's: it is looked at when all traces are.
    const size_t own = queue->kind == QueueKind::rma ? 1 : event.parts.size();
    for (size_t i = 0; i < own; ++i) TRY(checkPart(event.parts[i], event));
    if (event[at::kRequest] == 0) return {};
    if (!open_.emplace(event[at::kRequest], OpenRequest{queue, queue->ops.size() - 1}).second)
      return lie(*plan_, fmt::format("has request {} twice", event[at::kRequest]));
    return {};
  }

  Status checkPart(const trace::Part& part, const Event& event) const {
    if (part.memory == 0) return {};
    const auto memory = plan_->memories.find(part.memory);
    const bool fits = memory != plan_->memories.end() && part.offset <= memory->second.bytes &&
                      part.size <= memory->second.bytes - part.offset;
    if (fits) return {};
    return lie(*plan_, fmt::format("names memory outside of registration {}: {}", part.memory,
                                   trace::describe(event)));
  }

  Status takeTest(const Event& event) {
    const auto open = open_.find(event[at::kRequest]);
    if (open == open_.end() || open->second.queue->number != event[at::kComm])
      return lie(*plan_, fmt::format("tests what it never posted: {}", trace::describe(event)));
    open->second.queue->ops.push_back({&event, {}, false});
    if (event.result != 0) open->second.queue->aborted = true;
    if (event.result == 0) open_.erase(open);
    return {};
  }

  int rank_;
  RankPlan* plan_;
  std::map<uint64_t, Queue*> contexts_;
  std::map<uint64_t, Queue*> comms_;
  std::map<uint64_t, OpenRequest> open_;
  std::set<const Queue*> closed_;
};

// By what the traces say of their ranks, if each says another.
void orderRanks(std::vector<RankPlan>* ranks) {
  std::map<int, size_t> byRank;
  for (size_t i = 0; i < ranks->size(); ++i)
    if (const auto rank = parseNumber<int>((*ranks)[i].trace.aboutOf("rank").c_str())) byRank[*rank] = i;
  if (byRank.size() != ranks->size()) return;
  std::vector<RankPlan> ordered;
  for (const auto& [rank, position] : byRank) ordered.push_back(std::move((*ranks)[position]));
  *ranks = std::move(ordered);
}

}  // namespace

std::string Queue::name() const {
  static constexpr const char* kNames[] = {"context",       "listening comm",    "send comm",
                                           "recv comm",     "coll context",      "listening coll comm",
                                           "coll comm",     "one-sided context", "listening one-sided comm",
                                           "one-sided comm"};
  std::string text = fmt::format("rank {}, {} {}", rank, kNames[static_cast<size_t>(kind)], number);
  if (kind == QueueKind::recv && peer != nullptr) text += fmt::format(" from rank {}", peer->rank);
  if (kind == QueueKind::send && listener != nullptr) text += fmt::format(" to rank {}", listener->rank);
  return text;
}

Result<std::unique_ptr<Plan>> makePlan(const std::vector<std::string>& paths) {
  TRY(const auto files, trace::findTraces(paths));
  auto plan = std::make_unique<Plan>();
  for (const std::string& file : files) {
    RankPlan rank;
    TRY(rank.trace, trace::readTrace(file));
    plan->ranks.push_back(std::move(rank));
  }
  orderRanks(&plan->ranks);
  for (size_t rank = 0; rank < plan->ranks.size(); ++rank)
    TRY(Sorter(static_cast<int>(rank), &plan->ranks[rank]).run());
  TRY(matchRanks(plan.get()));
  return plan;
}

}  // namespace weft::replay
