// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tools/netdriver/channel.h"
#include "tools/netdriver/coll_net.h"
#include "tools/perf/elements.h"
#include "tools/perf/slots.h"

// A collective operation over host memory that never blocks: start it, then call progress until it is done.
// An instance works for one channel of one rank, again and again. Used by one thread.
namespace weft::perf {

class Windows;

// Where an operation has a part for every rank, part r begins r * stride elements after the first.
struct Work {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  // in place: the input, or this rank's part of it
  size_t count = 0;             // elements, of each part where there are parts
  size_t stride = 0;            // elements
  const ElementType* type = nullptr;
  RedOp op = RedOp::sum;
  int root = 0;
};

// Where a rank stands and what it is connected to.
struct Wiring {
  int rank = 0;
  int size = 1;
  int channel = 0;                  // which of those side by side
  std::vector<netdriver::Comm> to;  // by peer; empty where the operation needs none
  std::vector<netdriver::Comm> from;
  size_t bufferBytes = size_t{4} << 20;          // of one direction of one connection
  size_t p2pChunkBytes = size_t{128} << 10;      // largest message of alltoall and sendrecv
  int group = 1;                                 // senders behind each rank of sendrecv, received in groups
  std::shared_ptr<netdriver::CollComm> offload;  // instead of connections, where the plugin does it all
  std::shared_ptr<Windows> windows;              // or where ranks reach into each other's memory
};

class Collective {
 public:
  virtual ~Collective() = default;
  virtual void start(const Work& work) = 0;
  // Sets *moved when anything happened.
  virtual Status progress(bool* moved) = 0;
  virtual bool done() const = 0;
  // Sent and received since it was made.
  virtual uint64_t messages() const = 0;
};

using MakeCollective = Result<std::unique_ptr<Collective>> (*)(Wiring);

// NCCL's rings: rounds of one chunk a rank or part, each chunk cut into slices of one slot. All-reduce is
// reduce-scatter, then all-gather; broadcast goes along the ring from the root.
Result<std::unique_ptr<Collective>> makeRingAllReduce(Wiring wiring);
Result<std::unique_ptr<Collective>> makeRingAllGather(Wiring wiring);
Result<std::unique_ptr<Collective>> makeRingReduceScatter(Wiring wiring);
Result<std::unique_ptr<Collective>> makeRingBroadcast(Wiring wiring);

// NCCL's double binary tree: even channels are one tree, odd ones the other. Data is reduced up the tree and
// comes back down it.
Result<std::unique_ptr<Collective>> makeTreeAllReduce(Wiring wiring);

// By the plugin's table for collective offload.
Result<std::unique_ptr<Collective>> makeOffloadedAllReduce(Wiring wiring);
Result<std::unique_ptr<Collective>> makeOffloadedAllGather(Wiring wiring);
Result<std::unique_ptr<Collective>> makeOffloadedReduceScatter(Wiring wiring);

// Every rank has a part for every other.
Result<std::unique_ptr<Collective>> makeAllToAll(Wiring wiring);

// Everyone sends to the next rank and receives from the one before.
Result<std::unique_ptr<Collective>> makeSendRecv(Wiring wiring);

// Ranks 0 and 1 are partners, 2 and 3, and so on. The lower one sends, and the other answers as soon as it
// has all of it.
Result<std::unique_ptr<Collective>> makePingPong(Wiring wiring);

// The lower partner sends kRateWindow messages one after the other, as fast as they go.
constexpr int kRateWindow = 64;
Result<std::unique_ptr<Collective>> makeMessageRate(Wiring wiring);

// The lower partner puts into the other's memory kPutWindow times, the last time with a signal.
constexpr int kPutWindow = 16;
Result<std::unique_ptr<Collective>> makePut(Wiring wiring);

// The lower partner puts, with a signal, and the other does the same as soon as it has seen it.
Result<std::unique_ptr<Collective>> makePutSignal(Wiring wiring);

// Both partners get from each other's memory, and signal that they have all of it: whose memory it is may not
// rest before.
Result<std::unique_ptr<Collective>> makeGet(Wiring wiring);

}  // namespace weft::perf
