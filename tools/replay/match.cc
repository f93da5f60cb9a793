// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/match.h"

#include <fmt/format.h>

#include "tools/replay/pattern.h"
#include "tools/trace/show/print.h"

namespace weft::replay {

namespace {

using trace::Kind;
namespace at = trace::at;

Error lie(const std::string& detail) {
  return {Code::invalidArgument, "replay", detail};
}

// Those who accept on a listener, in order.
struct Listener {
  Queue* queue = nullptr;
  std::vector<Queue*> accepted;
  size_t taken = 0;
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

Status join(Queue* send, std::map<uint64_t, Listener>* byHandle, uint64_t connection) {
  const auto found = byHandle->find((*send->ops.front().event)[at::kConnectHandle]);
  if (found == byHandle->end())
    return lie(send->name() + " connects to a listener that is in no trace; give the traces of all ranks");
  Listener& listener = found->second;
  send->listener = listener.queue;
  send->connection = connection;
  if (listener.taken == listener.accepted.size()) {
    send->aborted = true;  // nobody accepted it
    return {};
  }
  Queue* recv = listener.accepted[listener.taken++];
  send->peer = recv;
  recv->peer = send;
  recv->connection = connection;
  send->aborted = recv->aborted = send->aborted || recv->aborted;
  return {};
}

// What is known of a message at either end.
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

// What the ranks of a group have to do alike.
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
  std::map<uint64_t, std::vector<Queue*>> groups;
  for (RankPlan& rank : plan->ranks)
    for (Queue& queue : rank.queues) {
      if (queue.kind != QueueKind::coll) continue;
      const trace::Event& event = *queue.ops.front().event;
      const size_t ranks = event[at::kCollRanks], place = event[at::kCollRank];
      auto& group = groups[event[at::kCollGroup]];
      if (group.empty() && ranks <= plan->ranks.size()) group.resize(ranks);
      if (group.size() != ranks || place >= ranks || group[place] != nullptr)
        return lie(queue.name() +
                   " is of a group that does not fit; give the traces of all ranks, each once");
      group[place] = &queue;
    }
  for (auto& [number, group] : groups) {
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
    TRY(numberOperations(group));
  }
  return {};
}

}  // namespace

Status matchRanks(Plan* plan) {
  TRY(matchGroups(plan));
  std::map<uint64_t, Listener> byHandle;
  TRY(findListeners(plan, &byHandle));
  uint64_t connection = 0;
  for (RankPlan& rank : plan->ranks)
    for (Queue& queue : rank.queues)
      if (queue.kind == QueueKind::send) TRY(join(&queue, &byHandle, ++connection));
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
