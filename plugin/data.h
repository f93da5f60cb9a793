// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "plugin/calls.h"
#include "plugin/guard.h"
#include "plugin/objects.h"

// The data path's calls, inline in the shapes of abi.h. The core checks, once, that a message may be as it is
// and that the memory belongs to the comm. The rare calls - groups of receives, flushes, errors - are in
// data.cc.
namespace weft::plugin {

// Neither is ever inlined: words and errors would take registers from those who have none to say.
[[gnu::cold, gnu::noinline]] ncclResult_t refuse(const char* call, const char* why);

// The comm's sticky error; it was logged when it happened.
[[gnu::cold, gnu::noinline]] ncclResult_t broken(HeldComm& held);

// The core's answer, as NCCL hears it.
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

// A single receive whose arrays are there; anything else goes by postReceive. NCCL's hint that done may be
// said before the data is here (NCCL_NET_OPTIONAL_RECV_COMPLETION, in the request's place) is not taken: an
// eager message is copied by whoever polls, and NCCL does not poll for a receive that was said to be done.
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
