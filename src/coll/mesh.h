// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/coll/pipe.h"

// The connections between the ranks of a group: every pair of ranks, or each rank with rank 0 only. Making it
// blocks, with a deadline. Used by a single thread at a time. A backend owns it.
namespace weft::coll {

using HandleBytes = std::array<std::byte, control::kHandleBytes>;

// The group that is to be connected. Every rank gives the same handles in the same order.
struct MeshOptions {
  core::ContextRef context;
  core::ListenComm* listener = nullptr;  // its handle is among `handles`, at `rank`
  int device = 0;
  int rank = 0;
  std::vector<HandleBytes> handles;  // by rank
  bool full = true;                  // false: connections with rank 0 only
  Milliseconds timeout{20000};
  const char* purpose = "a collective group";       // for errors
  const char* hint = "is WEFT_COLLNET set there?";  // where a rank does not answer

  int ranks() const { return static_cast<int>(handles.size()); }
};

class Mesh {
 public:
  // Blocks until this rank's connections are up and have said whose they are. Errors name the rank that did
  // not come.
  static Result<std::unique_ptr<Mesh>> open(MeshOptions options);

  int rank() const { return options_.rank; }
  int ranks() const { return options_.ranks(); }
  // A hash of the handles: the same number on all ranks, and another one for another group.
  uint64_t group() const { return group_; }
  Milliseconds timeout() const { return options_.timeout; }
  const MeshOptions& options() const { return options_; }
  const Clock& clock() const { return options_.context->net().clock(); }
  Pipe* pipe(int rank) const {
    return pipes_[static_cast<size_t>(rank)].get();
  }  // null: this rank itself, or a rank that is not connected

  // Waits until nothing of the connections is under way. A mesh that is destroyed without it waits for
  // nothing.
  void close();

  // Connects the pairs that are not connected yet. All ranks call it at the same time.
  Status extend();

  // All ranks call it alike. Every rank gets the same verdict, or an error of its own where rank 0 is gone.
  // Rank 0 counts.
  Result<Verdict> vote(const Ballot& mine);

  explicit Mesh(MeshOptions options) : options_(std::move(options)) {}

 private:
  Error failed(const std::string& why, Code code = Code::remote) const;
  bool belongs(int peer) const { return peer != rank() && (options_.full || rank() == 0 || peer == 0); }
  bool joins(int peer) const { return belongs(peer) && !pipe(peer); }  // and is not connected yet
  Status connectAll();
  Status greetAll();
  Result<Verdict> countVotes(const Ballot& mine, Patience& patience);

  MeshOptions options_;
  uint64_t group_ = 0;
  std::vector<std::unique_ptr<core::SendComm>> sends_;     // by rank; empty but while connections are made
  std::vector<std::unique_ptr<core::RecvComm>> accepted_;  // in the order in which they come
  std::vector<std::unique_ptr<Pipe>> pipes_;               // by rank
};

}  // namespace weft::coll
