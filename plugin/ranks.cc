// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/ranks.h"

#include <cstdint>
#include <cstring>

#include "plugin/guard.h"

// The check of such arguments.
namespace weft::plugin {

namespace {

// Why the arguments cannot be; null: they can.
const char* fault(void* const* handles, int ranks, int rank, const HeldListener* listener, void* const* out) {
  if (!out) return "no place for the comm of these ranks";
  if (!handles) return "the handles are null";
  if (!listener) return "the listener is not of this plugin";
  if (ranks < 1 || ranks > coll::kMaxRanks) return "1 to 4096 ranks can be connected";
  if (rank < 0 || rank >= ranks) return "the rank is not one of these ranks";
  return nullptr;
}

}  // namespace

Result<coll::MeshOptions> ranksOf(const char* operation, void* handles[], int ranks, int rank,
                                  HeldListener* listener, void* const* out) {
  if (const char* why = fault(handles, ranks, rank, listener, out)) return refused(operation, why);
  coll::MeshOptions options;
  for (int i = 0; i < ranks; i++) {
    if (!handles[i]) return refused(operation, "the handle of a rank is null");
    options.handles.emplace_back();
    std::memcpy(options.handles.back().data(), handles[i], options.handles.back().size());
  }
  options.context = listener->context();
  options.listener = &listener->listener();
  options.device = listener->listener().device();
  options.rank = rank;
  return options;
}

MemoryDesc rangeOf(void* data, size_t bytes, int type) {
  MemoryDesc desc;
  desc.address = data;
  desc.length = bytes;
  desc.kind = type == NCCL_PTR_CUDA ? MemoryKind::cuda : MemoryKind::host;
  return desc;
}

MemoryDesc dmaBufOf(void* data, size_t bytes, uint64_t offset, int fd) {
  MemoryDesc desc;
  desc.address = data;
  desc.length = bytes;
  desc.kind = MemoryKind::dmabuf;
  desc.fd = fd;
  desc.fdOffset = offset;
  return desc;
}

Status checkMemory(const char* operation, const MemoryDesc& desc, int type) {
  if (!desc.address || desc.length == 0 || desc.length > PTRDIFF_MAX)
    return refused(operation, "the buffer is null, empty, or larger than any memory");
  if (type != NCCL_PTR_HOST && type != NCCL_PTR_CUDA)
    return refused(operation, "the memory is neither the host's (1) nor CUDA's (2)");
  return {};
}

}  // namespace weft::plugin
