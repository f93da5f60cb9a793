// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/coll/pipe.h"

// The ranks of a group, connected: every pair of them, or each with rank 0 only. Blocks while it is made,
// until a deadline. Used by a single thread at a time.
namespace weft::coll {

using HandleBytes = std::array<std::byte, control::kHandleBytes>;

struct MeshOptions {
  core::ContextRef context;
  core::ListenComm* listener = nullptr;  // whose handle is among the handles
  int device = 0;
  int rank = 0;
  std::vector<HandleBytes> handles;  // of all ranks
  bool full = true;                  // false: only with rank 0
  Milliseconds timeout{20000};

  int ranks() const { return static_cast<int>(handles.size()); }
};

class Mesh {
 public:
  static Result<std::unique_ptr<Mesh>> open(MeshOptions options);

  int rank() const { return options_.rank; }
  int ranks() const { return options_.ranks(); }
  uint64_t group() const { return group_; }
  Milliseconds timeout() const { return options_.timeout; }
  const MeshOptions& options() const { return options_; }
  const Clock& clock() const { return options_.context->net().clock(); }
  Pipe* pipe(int rank) const {
    return pipes_[static_cast<size_t>(rank)].get();
  }  // null: itself, or not connected

  // Connects the pairs that are not, on all ranks at the same time.
  Status extend();

  // All ranks call it alike: every one gets the same verdict, or an error of its own where rank 0 is gone.
  Result<Verdict> vote(const Ballot& mine);

  explicit Mesh(MeshOptions options) : options_(std::move(options)) {}

 private:
  bool belongs(int peer) const { return peer != rank() && (options_.full || rank() == 0 || peer == 0); }
  bool joins(int peer) const { return belongs(peer) && !pipe(peer); }  // and is to be connected now
  Status connectAll();
  Status greetAll();
  Result<Verdict> countVotes(const Ballot& mine, Patience& patience);

  MeshOptions options_;
  uint64_t group_ = 0;
  std::vector<std::unique_ptr<core::SendComm>> sends_;     // by rank, while it is made
  std::vector<std::unique_ptr<core::RecvComm>> accepted_;  // as they come
  std::vector<std::unique_ptr<Pipe>> pipes_;               // by rank
};

}  // namespace weft::coll
