// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/match.h"

#include <algorithm>

#include <fmt/format.h>

#include "src/base/number.h"
#include "tools/replay/pattern.h"
#include "tools/trace/show/print.h"

namespace weft::replay {

namespace {

using trace::Kind;
namespace at = trace::at;

Error lie(const std::string& detail) {
  return {Code::invalidArgument, "replay", detail};
}

// A listener, and both ends of what was made through it. The network accepts connections in the order in
// which they were asked for, so that order joins the ends.
struct Listener {
  Queue* queue = nullptr;
  std::vector<Queue*> accepted;  // in the order of the calls
  std::vector<Queue*> senders;   // likewise, by the clocks of their hosts
};

Status findListeners(Plan* plan, std::map<uint64_t, Listener>* byHandle) {
  std::map<const Queue*, Listener*> byQueue;
  for (RankPlan& rank : plan->ranks)
    for (Queue& queue : rank.queues) {
      if (queue.kind != QueueKind::listen) continue;
      Listener& listener = (*byHandle)[(*queue.ops.front().event)[at::kListenHandle]];
      if (listener.queue != nullptr)
        return lie(listener.queue->name() + " and " + queue.name() +
                   " have the same handle; is one trace given twice, or are these of several jobs?");
      listener.queue = &queue;
      byQueue[&queue] = &listener;
    }
  for (RankPlan& rank : plan->ranks)
    for (Queue& queue : rank.queues)
      if (queue.kind == QueueKind::recv) byQueue.at(queue.listener)->accepted.push_back(&queue);
  return {};
}

// When a sender asked for its connection: nanoseconds of its host's clock. The event is the call that
// succeeded, and says how long calls before it were told "not now".
uint64_t askedAt(const Plan& plan, const Queue& send) {
  const std::string begin = plan.ranks[static_cast<size_t>(send.rank)].trace.aboutOf("start_unix_ns");
  const trace::Event& connect = *send.ops.front().event;
  return parseNumber<uint64_t>(begin).value_or(0) + connect.time - connect[at::kConnectWaited];
}

Status findSenders(Plan* plan, std::map<uint64_t, Listener>* byHandle) {
  for (RankPlan& rank : plan->ranks)
    for (Queue& queue : rank.queues) {
      if (queue.kind != QueueKind::send) continue;
      const auto found = byHandle->find((*queue.ops.front().event)[at::kConnectHandle]);
      if (found == byHandle->end())
        return lie(queue.name() +
                   " connects to a listener that is in no trace; give the traces of all ranks");
      queue.listener = found->second.queue;
      found->second.senders.push_back(&queue);
    }
  for (auto& [handle, listener] : *byHandle)
    std::stable_sort(
        listener.senders.begin(), listener.senders.end(),
        [plan](const Queue* a, const Queue* b) { return askedAt(*plan, *a) < askedAt(*plan, *b); });
  return {};
}

void join(Listener* listener, uint64_t* connections) {
  for (size_t i = 0; i < listener->senders.size(); ++i) {
    Queue* send = listener->senders[i];
    send->connection = ++*connections;
    if (i >= listener->accepted.size()) {
      send->aborted = true;  // no call accepted it
      continue;
    }
    Queue* recv = listener->accepted[i];
    send->peer = recv;
    recv->peer = send;
    recv->connection = send->connection;
    send->aborted = recv->aborted = send->aborted || recv->aborted;
  }
}

// The facts known of a message at either end.
struct Known {
  uint64_t sent = 0;
  uint64_t posted = 0;
  uint64_t told = 0;
  bool isSent = false;
  bool isPosted = false;
  bool isTold = false;
};
using Messages = std::map<std::pair<int64_t, uint64_t>, Known>;  // by tag and number

void numberMessages(Queue* queue, Messages* messages) {
  std::map<int64_t, uint64_t> next;
  std::map<uint64_t, const Op*> requests;
  for (Op& op : queue->ops) {
    const bool post = op.event->kind == Kind::isend || op.event->kind == Kind::irecv;
    if (post && op.event->result == 0) {
      for (const trace::Part& part : op.event->parts) {
        const uint64_t number = next[part.tag]++;
        op.messages.push_back({seedOf(queue->connection, part.tag, number), number});
        Known& known = (*messages)[{part.tag, number}];
        (op.event->kind == Kind::isend ? known.isSent : known.isPosted) = true;
        (op.event->kind == Kind::isend ? known.sent : known.posted) = part.size;
      }
      requests[(*op.event)[at::kRequest]] = &op;
    }
    if (op.event->kind != Kind::test || queue->kind != QueueKind::recv || op.event->result != 0) continue;
    const auto found = requests.find((*op.event)[at::kRequest]);
    if (found == requests.end()) continue;  // a flush
    const Op& posted = *found->second;
    for (size_t i = 0; i < posted.messages.size() && i < op.event->parts.size(); ++i) {
      Known& known = (*messages)[{posted.event->parts[i].tag, posted.messages[i].number}];
      known.isTold = true;
      known.told = op.event->parts[i].size;
    }
  }
}

Status checkMessages(const Queue& recv, const Messages& messages) {
  for (const auto& [which, known] : messages) {
    const std::string message = fmt::format("{}, tag {}, message {}", recv.name(), which.first, which.second);
    if (known.isSent && known.isPosted && known.sent > known.posted && !recv.aborted)
      return lie(fmt::format("{}: {} bytes are sent into a receive of {}; the traces do not belong together",
                             message, known.sent, known.posted));
    if (known.isTold && known.isSent && known.told != known.sent)
      return lie(fmt::format("{}: {} bytes were sent and {} received; the traces do not belong together",
                             message, known.sent, known.told));
    if (known.isTold && known.told > known.posted)
      return lie(fmt::format("{}: {} bytes were received where {} were asked for; the trace is damaged",
                             message, known.told, known.posted));
    if (known.isTold && !known.isSent && !recv.aborted)
      return lie(message +
                 " was received and never sent; the sender's trace is incomplete or of another job");
  }
  return {};
}

// The part of an operation that is the same on all ranks of a group.
std::string shapeOf(const trace::Event& event) {
  std::string shape = trace::factsOf(event.kind).name;
  for (size_t i = at::kElementType; i < trace::factsOf(event.kind).fields; ++i)
    shape += fmt::format(" {} {}", trace::factsOf(event.kind).field[i].name, event[i]);
  if (event.kind == Kind::iallreduce) shape += fmt::format(", {} B", event.parts[0].size);
  return shape;
}

// Numbers a group's operations, which are the same on all of its ranks.
Status numberOperations(const std::vector<Queue*>& group) {
  std::vector<std::string> shapes;
  for (Queue* queue : group) {
    size_t number = 0;
    for (Op& op : queue->ops) {
      const Kind kind = op.event->kind;
      if (kind != Kind::iallreduce && kind != Kind::iallgather && kind != Kind::ireducescatter) continue;
      if (op.event->result != 0) continue;
      const std::string shape = shapeOf(*op.event);
      if (number == shapes.size()) shapes.push_back(shape);
      if (shapes[number] != shape)
        return lie(
            fmt::format("{}: operation {} is {}, and another rank's {}; the traces do not belong "
                        "together",
                        queue->name(), number, shape, shapes[number]));
      op.messages = {{0, number++}};
    }
  }
  return {};
}

Status matchGroups(Plan* plan) {
  std::map<std::pair<QueueKind, uint64_t>, std::vector<Queue*>> groups;
  for (RankPlan& rank : plan->ranks)
    for (Queue& queue : rank.queues) {
      if (queue.kind != QueueKind::coll && queue.kind != QueueKind::rma) continue;
      const trace::Event& event = *queue.ops.front().event;
      const size_t ranks = event[at::kCollRanks], place = event[at::kCollRank];
      auto& group = groups[{queue.kind, event[at::kCollGroup]}];
      if (group.empty() && ranks <= plan->ranks.size()) group.resize(ranks);
      if (group.size() != ranks || place >= ranks || group[place] != nullptr)
        return lie(queue.name() +
                   " is of a group that does not fit; give the traces of all ranks, each once");
      group[place] = &queue;
    }
  for (auto& [key, group] : groups) {
    bool aborted = false;
    for (size_t place = 0; place < group.size(); ++place) {
      if (group[place] == nullptr)
        return lie(fmt::format("rank {} of a group of {} is in no trace; give the traces of all ranks", place,
                               group.size()));
      aborted = aborted || group[place]->aborted;
    }
    for (Queue* queue : group) {
      queue->members.assign(group.begin(), group.end());
      queue->aborted = aborted;
    }
    TRY(key.first == QueueKind::coll ? numberOperations(group) : matchWindows(plan, group));
  }
  return {};
}

}  // namespace

Status matchRanks(Plan* plan) {
  TRY(matchGroups(plan));
  std::map<uint64_t, Listener> byHandle;
  TRY(findListeners(plan, &byHandle));
  TRY(findSenders(plan, &byHandle));
  uint64_t connections = 0;
  for (auto& [handle, listener] : byHandle) join(&listener, &connections);
  for (RankPlan& rank : plan->ranks)
    for (Queue& queue : rank.queues) {
      if (queue.kind != QueueKind::recv) continue;
      if (queue.peer == nullptr)
        return lie(queue.name() + " was accepted and nobody connected; give the traces of all ranks");
      Messages messages;
      numberMessages(const_cast<Queue*>(queue.peer), &messages);
      numberMessages(&queue, &messages);
      TRY(checkMessages(queue, messages));
    }
  for (RankPlan& rank : plan->ranks)
    for (Queue& queue : rank.queues)
      if (queue.kind == QueueKind::send && queue.peer == nullptr) {
        Messages alone;
        numberMessages(&queue, &alone);
      }
  return {};
}

}  // namespace weft::replay
