// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/peers.h"

#include "src/base/log.h"

// The ranks' own reduction: its members, memory and sizes.
namespace weft::coll {

namespace {

constexpr size_t kResultBytes = size_t{1} << 20;  // the most bytes of one message of a result

}  // namespace

PeersBackend::PeersBackend(std::unique_ptr<Mesh> mesh, const PeersOptions& options)
    : Exchanges(blocksOf(static_cast<size_t>(mesh->ranks()), options), kResultBytes),
      mesh_(std::move(mesh)),
      oneStepBytes_(options.oneStepBytes) {
  members_ = mesh_->members();
}

// 8 blocks at least, of which the oldest operation has 4 to itself; 16 where there is room.
BlockPool::Options PeersBackend::blocksOf(size_t ranks, const PeersOptions& options) {
  constexpr size_t kFewest = 8, kMost = 16;
  BlockPool::Options blocks;
  const size_t room = options.mostBytes / (kFewest * (ranks + 1)) / kChunkAlign * kChunkAlign;
  blocks.pieceBytes = std::min(options.pieceBytes, std::max<size_t>(room, kChunkAlign));
  blocks.most =
      std::clamp(options.mostBytes / BlockPool::blockBytes(ranks, blocks.pieceBytes), kFewest, kMost);
  return blocks;
}

Result<std::unique_ptr<GroupMemory>> PeersBackend::registerMemory(const MemoryDesc& desc) {
  if (desc.kind == MemoryKind::host) return Exchanges::registerMemory(desc);
  return Error(Code::unavailable, "registering memory",
               "WEFT_COLLNET=peers reduces in host memory, and this is a GPU's");
}

std::string PeersBackend::nameOf(int member) const {
  return format("rank %d", member);
}

}  // namespace weft::coll
