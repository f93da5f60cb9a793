// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/rma/team.h"
#include "tests/coll/ranks.h"

// The ranks of one team in this process, each with a network of its own: connected and registered by a thread
// each, as both block, and driven afterwards by the test's thread.
namespace weft::test {

class Teams {
 public:
  explicit Teams(int count, Config config = {}, const Ranks::MakeTransport& makeTransport = {});
  ~Teams();  // all at the same time, as NCCL does

  int count() const { return static_cast<int>(teams_.size()); }
  rma::Team& team(int rank) { return *teams_[static_cast<size_t>(rank)]; }
  void drop(int rank) { teams_[static_cast<size_t>(rank)].reset(); }
  const Ranks& ranks() const { return ranks_; }

  // A window of `bytes` on every rank, zeroed. Returns its index here.
  size_t addWindow(size_t bytes);
  rma::Window* window(size_t index, int rank) { return windows_[index][static_cast<size_t>(rank)].handle; }
  std::vector<std::byte>& bytes(size_t index, int rank) {
    return windows_[index][static_cast<size_t>(rank)].bytes;
  }
  uint64_t word(size_t index, int rank, size_t offset);

  // Calls progress() of all ranks until it is true. False: it is not, after ten seconds.
  bool until(const std::function<bool()>& reached);
  // Tests until it is done; an error fails the test.
  void finish(int rank, rma::Request* request);
  rma::Put put(int from, int to, size_t window, uint64_t offset, uint64_t bytes);  // at the same place there

 private:
  struct Memory {
    std::vector<std::byte> bytes;
    rma::Window* handle = nullptr;
  };
  Ranks ranks_;
  std::vector<std::unique_ptr<rma::Team>> teams_;
  std::vector<std::vector<Memory>> windows_;  // by index, then by rank
};

// The request; an error fails the test.
rma::Request* begun(Result<rma::Request*> result);
// A signal of `addend` with a put, into the word at `offset` of a window.
rma::Put withSignal(rma::Put put, rma::Window* window, uint64_t offset, uint64_t addend = 1);

}  // namespace weft::test
