// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/trace/reader.h"

// The steps that repeat a job: its ranks' traces, put together. Made by one thread, only read afterwards.
namespace weft::replay {

// A message of a post.
struct Message {
  uint64_t seed = 0;
  uint64_t number = 0;  // among those of its tag; of a put: 1 where its bytes are to be written before
};

// Bytes that came to a rank of a group from one other, and that nothing else overwrote. Several puts to the
// same place have no order, so each of its words is one of theirs.
struct Landed {
  std::vector<uint64_t> seeds;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  size_t from = 0;  // rank
};

// All that has to be here before a window is given up: words, by window and offset, and bytes. The landing of
// window 0, which there is not, has all words of the group.
struct Landing {
  std::vector<Landed> puts;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> words;
  bool certain = true;  // a signal follows each rank's last put
};

struct Op {
  const trace::Event* event = nullptr;
  std::vector<Message> messages;  // of isend and irecv; of a collective operation, one
  bool neverDone = false;         // a post that no test finished
  uint64_t aside = 0;             // of a get: how far behind its place in the window its bytes come
};

enum class QueueKind : uint8_t {
  context,
  listen,
  send,
  recv,
  collContext,
  collListen,
  coll,
  rmaContext,
  rmaListen,
  rma
};

constexpr bool isColl(QueueKind kind) {
  return kind >= QueueKind::collContext && kind <= QueueKind::coll;
}
constexpr bool isRma(QueueKind kind) {
  return kind >= QueueKind::rmaContext;
}

// The events of one comm, listener or context, in the order they were recorded. An event is begun only when
// all before it are, and, of tests, are done.
struct Queue {
  QueueKind kind = QueueKind::send;
  int rank = 0;
  uint64_t number = 0;   // in the trace
  uint64_t context = 0;  // 0: of a table without contexts
  int device = 0;
  uint64_t trafficClass = 0;  // of a context, as the trace has it
  std::vector<Op> ops;
  std::map<uint64_t, Landing> landings;  // of one-sided operations, by window
  const Queue* listener = nullptr;       // of a recv: who accepts it; of a send: to whom it connects
  const Queue* peer = nullptr;           // the other end; null: none was made
  uint64_t connection = 0;               // the same for both ends, another for each connection
  std::vector<const Queue*> members;     // of a coll or rma: all ranks of its group, by their number in it
  // An end failed, was closed with requests unfinished, or its trace ends before it is closed: the other end
  // may then meet errors.
  bool aborted = false;

  std::string name() const;  // "rank 1, recv comm 5 from rank 0"
};

constexpr uint64_t kWindowPage = 4096;  // a window keeps its place in its page

struct MemoryFacts {
  uint64_t bytes = 0;
  uint64_t address = 0;
  uint64_t aside = 0;  // of a window: bytes behind it, for gets
};

struct RankPlan {
  trace::Trace trace;
  std::deque<Queue> queues;
  std::map<uint64_t, MemoryFacts> memories;
  std::vector<const trace::Event*> blocking;  // calls that wait for the other ranks of a group, in order
  uint32_t threads = 0;
  uint64_t recordedNanoseconds = 0;
};

struct Plan {
  std::vector<RankPlan> ranks;
};

// Ranks in the order that the traces know of, else that of the files. Errors name the rank, the comm and what
// does not fit: traces that contradict each other are not replayed.
Result<std::unique_ptr<Plan>> makePlan(const std::vector<std::string>& files);

}  // namespace weft::replay
