// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/coll/mesh.h"

// Broadcast, barrier and gather of a few bytes between a group's ranks, by way of rank 0, for a library that
// needs them to set itself up. The calls block, each with a deadline of its own; all ranks make the same
// calls in the same order. A rank that cannot go on gives up, which ends the calls of the other ranks soon.
// Used by the thread that opens the group.
namespace weft::coll {

class OutOfBand {
 public:
  OutOfBand(Mesh& mesh, Milliseconds timeout) : mesh_(mesh), timeout_(timeout) {}

  Status broadcast(std::span<std::byte> data, int root);
  Status barrier();
  // Gathers `send` of every rank, in the order of the ranks, into `all`. Only the root needs `all`.
  Status gather(std::span<const std::byte> send, std::span<std::byte> all, int root);
  bool isRank(int rank) const { return rank == mesh_.rank(); }
  size_t ranks() const { return static_cast<size_t>(mesh_.ranks()); }
  bool isOver() const { return over_; }  // a rank gave up
  void giveUp();                         // tells the others; the vote brings the reason later

  // For the calls that follow.
  void setTimeout(Milliseconds timeout) { timeout_ = timeout; }

 private:
  Status say(int rank, std::span<const std::byte> data, Patience& patience);
  Status hear(int rank, std::span<std::byte> data, Patience& patience);

  Mesh& mesh_;
  Milliseconds timeout_;
  bool over_ = false;  // a rank gave up
};

}  // namespace weft::coll
