// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <map>
#include <optional>

#include "tests/coll/ranks.h"

// Operations of all ranks of a group at once, whatever its backend, and what must come of them. One thread.
namespace weft::test {

// An operation of every rank, with its data and its request.
class Run {
 public:
  // `first`: so many of the ranks take part; 0: all.
  Run(Ranks& ranks, const coll::Operation& shape, uint64_t seed, int first = 0);
  // Starts what is not started and tests what is, in an order that `random` chooses, until all are done.
  void finish(SeededRandom& random);
  bool step(int rank);                               // true: that rank is done
  void forget(int rank);                             // its group may be closed now
  void leave(int rank);                              // its group is closed, whatever is outstanding
  void change(int rank, const coll::Operation& to);  // that rank starts something else
  coll::Started flush(int rank);                     // of its result
  void check() const;                                // against the same operation done here
  const std::vector<std::byte>& result(int rank) const {
    return vectors_[static_cast<size_t>(rank)]->receive;
  }
  const std::vector<std::byte>& sent(int rank) const { return vectors_[static_cast<size_t>(rank)]->send; }
  std::optional<std::string> failure(int rank) const { return failures_[static_cast<size_t>(rank)]; }
  bool started(int rank) const {  // or has failed
    return requests_[static_cast<size_t>(rank)] || failures_[static_cast<size_t>(rank)];
  }
  void reduceInPlace(int rank);  // the result over what that rank sends
  // That rank's buffers elsewhere; check() does not look there.
  void receiveInto(int rank, void* data, coll::GroupMemory* memory) {
    elsewhere(rank).receive = {data, memory};
  }
  void sendFrom(int rank, void* data, coll::GroupMemory* memory) { elsewhere(rank).send = {data, memory}; }
  bool done(int rank) const { return done_[static_cast<size_t>(rank)]; }

 private:
  coll::Operation of(int rank) const;
  void checkReduced() const;
  void checkGathered() const;

  Ranks& ranks_;
  coll::Operation shape_;
  std::vector<coll::Operation> shapes_;  // by rank
  std::vector<std::unique_ptr<Vectors>> vectors_;
  std::vector<coll::GroupRequest*> requests_;
  std::vector<bool> done_;
  struct Buffer {
    void* data = nullptr;
    coll::GroupMemory* memory = nullptr;
  };
  struct Elsewhere {
    Buffer send, receive;
  };
  Elsewhere& elsewhere(int rank) { return elsewhere_[rank]; }
  std::vector<bool> inPlace_;           // by rank
  std::map<int, Elsewhere> elsewhere_;  // by rank
  std::vector<std::optional<std::string>> failures_;
};

coll::Operation allReduce(size_t bytes, coll::ElementType type = coll::ElementType::f32,
                          coll::ReduceOp op = coll::ReduceOp::sum);
coll::Operation windowed(coll::OperationKind kind, size_t bytesPerRank, size_t offset, size_t bytes,
                         coll::ElementType type = coll::ElementType::i32);

// Every kind, sizes around every limit, all types, in place and not, several at a time.
void checkSizes(Ranks& ranks);
void checkTypes(Ranks& ranks);
void checkWindows(Ranks& ranks);
void checkManyAtOnce(Ranks& ranks, int rounds);

}  // namespace weft::test
