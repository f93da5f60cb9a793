// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/coll/handshakes.h"

// The connections between the ranks of a group: every pair of ranks, or each rank with rank 0 only. Making it
// blocks, with a deadline. Used by a single thread at a time. A backend owns it.
namespace weft::coll {

class Mesh {
 public:
  // Blocks until this rank's connections are up and have said whose they are. Errors name the rank that did
  // not come. Where ranks connect with rank 0 only, rank 0 gets a mesh without those that did not: the others
  // wait for its verdict, which names them.
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

  Members members() const;

  // Waits until nothing of the connections is under way. A mesh that is destroyed without it waits for
  // nothing.
  void close();

  // Connects the pairs that are not connected yet. All ranks call it at the same time.
  Status extend();

  // All ranks call it alike. Every rank gets the same verdict, or an error of its own where rank 0 is gone.
  // Rank 0 counts. Those that did not come or do not vote are blamed before all others. `mine` gets the time.
  Result<Verdict> vote(Ballot mine);

  explicit Mesh(MeshOptions options) : options_(std::move(options)) {}

 private:
  bool belongs(int peer) const { return peer != rank() && (options_.full || rank() == 0 || peer == 0); }
  Status connect();
  Result<Verdict> countVotes(const Ballot& mine);
  Result<Verdict> hearVerdict(const Ballot& mine);
  void collect(std::vector<Ballot>& ballots);
  void announce(const Verdict& verdict, const std::vector<Ballot>& ballots);

  MeshOptions options_;
  uint64_t group_ = 0;
  TimePoint lastVerdict_{};                   // or the beginning
  std::vector<std::unique_ptr<Pipe>> pipes_;  // by rank
  std::vector<Handshakes::Missing> missing_;  // by the last connect()
};

}  // namespace weft::coll
