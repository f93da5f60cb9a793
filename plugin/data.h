// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "plugin/calls.h"
#include "plugin/guard.h"
#include "plugin/objects.h"

// The data path's calls, inline in the shapes of abi.h. The core checks once that a message is allowed and
// that the memory belongs to the comm. The rare calls (groups of receives, flushes, errors) are in data.cc.
namespace weft::plugin {

// Neither function is ever inlined: words and errors would take registers from calls that have no error.
[[gnu::cold, gnu::noinline]] ncclResult_t refuse(const char* call, const char* why);

// The result for the comm's sticky error. The error was logged when it happened.
[[gnu::cold, gnu::noinline]] ncclResult_t broken(HeldComm& held);

// The core's answer in NCCL's words.
inline ncclResult_t answer(HeldComm& held, const core::Posted& posted, void** request) {
  *request = posted.request;
  if (!posted.ok) [[unlikely]]
    return broken(held);
  return ncclSuccess;
}

inline ncclResult_t postSend(void* sendComm, void* data, size_t bytes, int tag, void* mhandle, void* phandle,
                             void** request) {
  return guardData(
      "isend", [&]() __attribute__((always_inline))->ncclResult_t {
        if (!request) return refuse("isend", "no place for the request");
        *request = nullptr;
        HeldComm* held = commOf(sendComm, Kind::send);
        if (!held) return refuse("isend", "the comm is null or not for sending");
        auto* memory = static_cast<core::MemoryHandle*>(mhandle);
        return answer(*held, held->send().isend(data, bytes, tag, memory, phandle), request);
      });
}

// A single receive whose arrays are there; everything else goes by postReceive. NCCL may hint that `done` can
// be said before the data is here (NCCL_NET_OPTIONAL_RECV_COMPLETION, in the request's place). The hint is
// not taken: the thread that polls copies an eager message, and NCCL does not poll for a receive that was
// said to be done.
inline ncclResult_t postOne(void* recvComm, void* data, size_t bytes, int tag, void* mhandle, void* phandle,
                            void** request) {
  return guardData(
      "irecv", [&]() __attribute__((always_inline))->ncclResult_t {
        *request = nullptr;
        HeldComm* held = commOf(recvComm, Kind::receive);
        if (!held) return refuse("irecv", "the comm is null or not for receiving");
        auto* memory = static_cast<core::MemoryHandle*>(mhandle);
        return answer(*held, held->receive().irecvOne(data, bytes, tag, memory, phandle), request);
      });
}

}  // namespace weft::plugin
