// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/ranks.h"

#include <cstring>

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
  if (const char* why = fault(handles, ranks, rank, listener, out))
    return Error(Code::invalidArgument, operation, why);
  coll::MeshOptions options;
  for (int i = 0; i < ranks; i++) {
    if (!handles[i]) return Error(Code::invalidArgument, operation, "the handle of a rank is null");
    options.handles.emplace_back();
    std::memcpy(options.handles.back().data(), handles[i], options.handles.back().size());
  }
  options.context = listener->context();
  options.listener = &listener->listener();
  options.device = listener->listener().device();
  options.rank = rank;
  return options;
}

}  // namespace weft::plugin
