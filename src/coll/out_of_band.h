// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/coll/mesh.h"

// Broadcast, barrier and gather of a few bytes between a group's ranks, by way of rank 0, for a library that
// needs them to set itself up. They block, with a deadline for each; all ranks call the same. A rank that
// cannot go on gives up, which ends the calls of all the others soon.
namespace weft::coll {

class OutOfBand {
 public:
  OutOfBand(Mesh& mesh, Milliseconds timeout) : mesh_(mesh), timeout_(timeout) {}

  Status broadcast(std::span<std::byte> data, int root);
  Status barrier();
  // `send` of every rank, in their order, into `all`, which only the root needs.
  Status gather(std::span<const std::byte> send, std::span<std::byte> all, int root);
  bool isRank(int rank) const { return rank == mesh_.rank(); }
  size_t ranks() const { return static_cast<size_t>(mesh_.ranks()); }
  bool isOver() const { return over_; }  // a rank gave up
  void giveUp();                         // tells the others; their words follow by the vote

  void setTimeout(Milliseconds timeout) { timeout_ = timeout; }

 private:
  Status say(int rank, std::span<const std::byte> data, Patience& patience);
  Status hear(int rank, std::span<std::byte> data, Patience& patience);

  Mesh& mesh_;
  Milliseconds timeout_;
  bool over_ = false;  // a rank gave up
};

}  // namespace weft::coll
