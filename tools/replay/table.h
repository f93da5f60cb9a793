// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <optional>

#include "tools/replay/coll_data.h"
#include "tools/replay/memory.h"
#include "tools/replay/times.h"

// The calls of a plugin's table that a QueueRun makes for its one comm, listener or context: those of the
// network's table (NetCalls) or of the one for collective offload (CollCalls). It owns the comm and the
// context, and knows what a recorded call means for its table; the QueueRun knows what has to wait and what
// has failed. Used by one thread at a time, as the QueueRun that owns it.
namespace weft::replay {

struct RankState;  // rank_run.h

enum class Step : uint8_t { done, later };

// The plugin's answer to a call that makes something. A success that made nothing yet is tried again.
struct Answer {
  ncclResult_t result = ncclSuccess;
  bool made = false;
};

// A post, from its data to the end of its request.
struct Posted {
  void* raw = nullptr;
  const Op* op = nullptr;
  std::vector<Place> places;     // of its parts
  std::optional<CollData> data;  // of a collective operation
  std::chrono::steady_clock::time_point at;
};

class Table : public Registrar {
 public:
  Table(const Queue& plan, RankState& rank) : plan_(&plan), rank_(&rank) {}

  // Of the queue of a context.
  virtual Status init(const Op& op) = 0;
  virtual void finalize() = 0;
  // Of others. A handle that the listener has is published.
  virtual Result<Answer> listen() = 0;
  virtual Result<Answer> connect(const Op& op, Times* times) = 0;
  virtual Result<Answer> accept(const Op& op, Times* times) = 0;  // hands the comm to its own queue
  virtual ncclResult_t close() = 0;                               // fine where there is nothing

  // The places of the parts and the bytes that are sent.
  virtual Status prepare(const Op& op, CommMemory* memory, Posted* posted) = 0;
  virtual ncclResult_t post(const Posted& posted, void** request) = 0;
  virtual ncclResult_t flush(const Posted& posted, void** request) = 0;
  virtual ncclResult_t test(void* request, int* done, int* sizes) = 0;
  // Compares what came with what was sent. False: NCCL left completion to the data itself, and the plugin
  // said done before the bytes were there.
  virtual Result<bool> check(const Op& test, const Posted& posted, std::span<const int> sizes,
                             Times* times) = 0;
  // The sum that the time from post to done belongs to.
  virtual Compared& sumOf(const Posted& posted, Times* times) const = 0;

 protected:
  Error error(const std::string& detail) const;
  int device() const;
  // Of the listeners of a group's members, in their order; none while one is not published yet.
  std::vector<netdriver::Handle> handlesOfMembers() const;

  const Queue* plan_;
  RankState* rank_;
};

}  // namespace weft::replay
