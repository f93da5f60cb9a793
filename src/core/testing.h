// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/core/recv_comm.h"
#include "src/core/send_comm.h"

// What every test goes through, inline in whoever stands between NCCL and the core. For which comm a request
// was made is in it.
namespace weft::core {

inline Tested RecvCommImpl::testSlot(ReceiveSlot* slot, int* sizes, bool polls) {
  RecvCommImpl* comm = slot->comm;
  if (!comm) [[unlikely]]
    return {false, false};
  Engine& engine = comm->engine();
  if (!engine.tryEnter()) [[unlikely]]
    return {};
  const EngineStay inside(engine);
  if (polls && slot->state != SlotState::filled && !comm->failed()) engine.progress();
  if (slot->state != SlotState::filled || slot->reportedFailed) return comm->testUnfilled(slot);
  if (sizes) sizes[0] = static_cast<int>(slot->received);
  engine.giveSlot(slot);
  return {true, true};
}

// What was complete before the comm failed stays complete.
inline Tested CommBase::testOwn(Request* request, int* sizes) {
  Engine& engine = this->engine();
  if (!engine.tryEnter()) [[unlikely]]
    return {};
  const EngineStay inside(engine);
  if (request->remaining != 0 && !failed()) [[likely]] {
    if (request->departure != 0) [[unlikely]]
      beforePoll(request);
    engine.progress();
  }
  if (request->remaining != 0 || request->reportedFailed) return testUnfinished(request);
  if (request->kind == RequestKind::send) [[likely]] {
    if (request->departure != 0) [[unlikely]]
      peering().leaveWith(request->departure);
    send_->finishRequest(request, sizes);
    engine.giveRequest(request);
    return {true, true};
  }
  return finish(request, sizes);
}

// Of whichever comm made it: a receive's slot, or an object.
inline Tested testSlot(Request* request, int* sizes) {
  return RecvCommImpl::testSlot(slotOf(request), sizes);
}
inline Tested testOwn(Request* request, int* sizes) {
  if (!request || !request->comm) [[unlikely]]
    return {false, false};
  return request->comm->testOwn(request, sizes);
}

}  // namespace weft::core
