// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/coll/exchanges.h"
#include "src/coll/mesh.h"

// The ranks reduce among themselves, without a daemon. Each rank reduces its share of the vector and sends it
// to all others: two steps instead of a ring's 2 (n - 1). Reduces in host memory. Threads as in exchanges.h.
namespace weft::coll {

struct PeersOptions {
  size_t pieceBytes = size_t{64} << 10;  // bytes that are reduced at a time
  size_t oneStepBytes = 2048;  // vectors up to this size are reduced whole by every rank, in one step
  size_t mostBytes =
      size_t{256} << 20;  // for the pieces of all ranks; large groups have smaller pieces for it
};

class PeersBackend final : public Exchanges {
 public:
  // The mesh connects all pairs of ranks. The backend owns it.
  PeersBackend(std::unique_ptr<Mesh> mesh, const PeersOptions& options);

  Result<std::unique_ptr<GroupMemory>> registerMemory(const MemoryDesc& desc) override;
  void disconnect() override { mesh_->close(); }
  Mesh& mesh() { return *mesh_; }
  // The blocks of a group: the same on all ranks.
  static BlockPool::Options blocksOf(size_t ranks, const PeersOptions& options);

 private:
  void plan(const Operation& operation, Plan* plan) const override {
    makePlan(operation, mesh_->rank(), mesh_->ranks(), oneStepBytes_, plan);
  }
  std::string nameOf(int member) const override;

  std::unique_ptr<Mesh> mesh_;
  const size_t oneStepBytes_;
};

}  // namespace weft::coll
