// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/recv_comm.h"

// Flushes. A null request says that there is nothing to wait for. So a caller that does not get into the
// engine has a request all the same, which waits for nobody: its flush begins when it is tested.
namespace weft::core {

Posted RecvCommImpl::iflush(std::span<const ReceiveSpec> received) {
  if (failed()) return {false, nullptr};
  const ReceiveSpec* last = nullptr;
  for (const ReceiveSpec& spec : received) {
    if (spec.bytes > 0 && spec.memory && needsFlush(spec.memory->region->kind())) last = &spec;
  }
  if (!last) return {};
  const mem::RegionRef& region = last->memory->region;
  const uint64_t offset = last->memory->offsetOf(last->data);
  const EngineEntry in(engine(), EngineEntry::tryOnce);
  if (!in) return {true, engine().takePutOff(this, region, offset)};
  if (failed()) return {false, nullptr};
  if (!mayHaveCome()) return {};
  Request* request = beginFlush(region, offset);
  return {request != nullptr, request};
}

// By a card: the driver's copies are over when a receive is.
bool RecvCommImpl::mayHaveCome() const {
  return !peering().onlySharesMemory();
}

// Null: the comm has ended.
Request* RecvCommImpl::beginFlush(const mem::RegionRef& region, uint64_t offset) {
  Request* request = engine().takeRequest(RequestKind::flush, this);
  if (!request) {
    endByUs(Error(Code::resources, "flushing",
                  "no request is left; test what is in flight before the next flush"));
  } else if (!engine().flushLanes().post(request, region, offset)) {
    engine().giveRequest(request);
    request = nullptr;
    endByUs(Error(Code::system, "flushing", "the loopback lane of " + engine().deviceName() + " is not up"));
  }
  return request;
}

// It is tested, inside the engine. One whose flush has failed is never done: its comm has ended.
void RecvCommImpl::goOn(PutOffFlush* flush) {
  if (!flush->begun && mayHaveCome()) {
    flush->begun = beginFlush(flush->region, flush->offset);
    if (!flush->begun) return;
  }
  if (flush->begun) {
    if (flush->begun->remaining > 0) return;
    engine().giveRequest(flush->begun);
  }
  flush->remaining = 0;
}

}  // namespace weft::core
