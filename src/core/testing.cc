// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/testing.h"

#include <vector>

#include "src/base/reserve.h"

// The rarer part of testing, and the end of what connect and accept handed out: here the two kinds of comms
// are known.
namespace weft::core {

// Of a group, or a flush.
Tested CommBase::finish(Request* request, int* sizes) {
  if (request->kind == RequestKind::putOff) {
    engine().givePutOff(static_cast<PutOffFlush*>(request));
    return {true, true};
  }
  if (request->kind == RequestKind::receive) recv_->finishRequest(request, sizes);
  engine().giveRequest(request);
  return {true, true};
}

// A send that waits for others to leave with, or a flush that was put off.
void CommBase::beforePoll(Request* request) {
  if (request->kind == RequestKind::putOff) return recv_->goOn(static_cast<PutOffFlush*>(request));
  peering().leaveWith(request->departure);
}

Tested testObject(Request* request, int* sizes) {
  return isSlot(request) ? testSlot(request, sizes) : testOwn(request, sizes);
}

Tested testArrived(Request* request, int* sizes) {
  if (!isSlot(request)) return testObject(request, sizes);
  return RecvCommImpl::testSlot(slotOf(request), sizes, false);
}

bool isLive(const Request* request) {
  if (isSlot(request)) return slotOf(request)->comm && slotOf(request)->isRequest;
  return request && request->comm;
}

Error errorOf(const Request* request) {
  if (isSlot(request)) return slotOf(request)->comm->stickyError();
  return request->comm->stickyError();
}

namespace {

// Waits for nothing but its turn in the engine. What is over goes outside of it, as its fabrics may take long
// to give memory back.
void closeLater(std::unique_ptr<CommBase> comm) {
  const MustNotFail closing;
  CommOptions held;  // let go of after the engine is left: it may be the last one
  std::vector<std::unique_ptr<CommBase>> closed;
  EngineEntry in(comm->engine(), EngineEntry::wait);
  held = comm->detach();
  held.engine->closeOwned(std::move(comm));
  closed = held.engine->takeClosed();
}

}  // namespace

void giveBack(SendComm* comm) {
  if (comm) closeLater(std::unique_ptr<CommBase>(static_cast<SendCommImpl*>(comm)));
}

void giveBack(RecvComm* comm) {
  if (comm) closeLater(std::unique_ptr<CommBase>(static_cast<RecvCommImpl*>(comm)));
}

}  // namespace weft::core
