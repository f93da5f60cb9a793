// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cassert>

#include "src/base/reserve.h"
#include "src/core/engine.h"
#include "src/core/lock_order.h"
#include "src/core/recv_comm.h"
#include "src/core/send_comm.h"

// The engine as the owner of comms: their numbers, their ends, and what the parts below, which know requests
// and slots alone, ask of them.
namespace weft::core {

Engine::Engine(EngineOptions options) : EngineParts(std::move(options)) {}

// Peers learn that lanes to this engine are about to break, and lanes go before the queues they complete to.
// The comms that nobody waited for are cut off by that: their memory goes behind the lanes.
Engine::~Engine() {
  assert(mayBlock());
  const MustNotFail closing;
  for (const auto& comm : owned_) comm->abandon();
  for (auto& peering : peerings_) {
    if (peering && !peering->remoteGone()) peering->tell(MessageType::engineGone, CommMessage{});
  }
  peerings_.clear();
  owned_.clear();
}

uint32_t Engine::addComm(CommBase* comm) {
  return comms_.add(comm);
}

void Engine::removeComm(uint32_t number) {
  const CommBase* comm = comms_.find(number);
  if (!comm) return;
  std::erase_if(ctsWriters_, [&](const RecvCommImpl* writer) { return writer == comm; });
  comms_.remove(number);
  eachRequestOf(comm, [&](Request& request) {
    request.events.fill(nullptr);
    request.memory = nullptr;
    giveRequest(&request);
  });
  dropPutOffs(comm);
  for (uint32_t i = 0; i < slots_.size(); i++)
    if (slots_[i].comm && slots_[i].comm == comm) giveSlot(&slots_[i]);
}

size_t Engine::openComms(const Peering& peering) const {
  size_t open = 0;
  comms_.each([&](const CommBase& comm) { open += &comm.peering() == &peering && comm.wantsPeer(); });
  return open;
}

void Engine::endComms(const Peering& peering, const Ending& ending) {
  comms_.each([&](CommBase& comm) {
    if (&comm.peering() != &peering) return;
    comm.needsPeer() ? comm.end(ending) : comm.onPeerGone();
  });
}

bool Engine::tickBusy() {
  if (requests_.taken() > 0 || wantsAfterPoll_ || !owned_.empty()) return true;
  bool commBusy = false;
  comms_.each([&](const CommBase& comm) { commBusy = commBusy || comm.busy(); });
  if (commBusy) return true;
  return std::any_of(peerings_.begin(), peerings_.end(),
                     [](const auto& peering) { return peering && peering->tickBusy(); });
}

void Engine::endComm(const Request& request, const Ending& ending) {
  request.comm->end(ending);
}

void Engine::eachSendOn(const Peering& peering, const SendVisit& visit) {
  eachRequest([&](const Request& request) {
    if (request.kind == RequestKind::send && &request.comm->peering() == &peering)
      visit(request, request.comm->remoteNumber());
  });
}

void Engine::resolve(Request* request, uint16_t segments, uint16_t missing) {
  request->comm->asSend()->resolve(request, segments, missing);
}

void Engine::tellCts(const Peering& peering, uint8_t lane) {
  comms_.each([&](CommBase& comm) {
    if (&comm.peering() == &peering && comm.asRecv()) comm.asRecv()->tellCts(lane);
  });
}

bool Engine::belongsTo(const ReceiveSlot& slot, const Peering& peering, uint32_t comm) const {
  return slot.comm->number() == comm && &slot.comm->peering() == &peering;
}

}  // namespace weft::core
