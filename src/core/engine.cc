// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/engine.h"

#include <algorithm>
#include <cassert>
#include <optional>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/core/lock_order.h"

namespace weft::core {

namespace {

constexpr uint32_t kPeeringLimit = kMaxSlots / kEagerSlotsPerPeering;

}  // namespace

Result<std::shared_ptr<Engine>> Engine::create(EngineOptions options) {
  assert(mayBlock());
  auto engine = std::make_shared<Engine>(std::move(options));
  TRY(engine->openQueues(engine.get()));
  return engine;
}

// Entering:

void Engine::enterWaiting() {
  assert(mayBlock());
  uint32_t seen = door_.fetch_add(kCallWaits, std::memory_order_relaxed) + kCallWaits;
  while ((seen & kInside) != 0 ||
         !door_.compare_exchange_weak(seen, seen + kInside - kCallWaits, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
    if ((seen & kInside) == 0) continue;
    options_.clock->yield();
    seen = door_.load(std::memory_order_relaxed);
  }
  called_.store(true, std::memory_order_relaxed);
  if (hasMail()) drainMail();
}

// A service call goes first.
bool Engine::tryEnterAsked(uint32_t seen) {
  if (seen != kMailWaits ||
      !door_.compare_exchange_strong(seen, kMailWaits | kInside, std::memory_order_acquire))
    return false;
  called_.store(true, std::memory_order_relaxed);
  drainMail();
  return true;
}

// Unless somebody is inside, who will look when leaving: mail that came meanwhile would wait for the next
// call otherwise.
void Engine::handleMail() {
  uint32_t seen = door_.load(std::memory_order_seq_cst);
  while ((seen & (kInside | kMailWaits)) == kMailWaits) {
    if (!door_.compare_exchange_weak(seen, seen | kInside, std::memory_order_seq_cst)) continue;
    drainMail();
    seen = --door_;
  }
}

void Engine::deliver(Mail mail) {
  {
    std::lock_guard lock(mailMutex_);
    mail_.push_back(std::move(mail));
    door_.fetch_or(kMailWaits, std::memory_order_seq_cst);
  }
  handleMail();
}

void Engine::drainMail() {
  const MustNotFail nobodyToTell;
  std::vector<Mail> batch;
  {
    std::lock_guard lock(mailMutex_);
    batch.swap(mail_);
    door_.fetch_and(~kMailWaits, std::memory_order_seq_cst);
  }
  for (Mail& mail : batch) handle(mail);
  if (!ctsWriters_.empty()) ctsDueAt(pass_);  // one may have waited for what the mail said
  flush();
}

// Peerings and comms:

bool Engine::wornOut() {
  enterWaiting();
  const bool worn = cardLost_ && comms_.empty();
  leave();
  return worn;
}

// One that has ended stays beside the next one until its last comm is closed.
Peering* Engine::livePeering(const control::Peer* peer, uint32_t remoteEngine) {
  for (auto& peering : peerings_) {
    if (!peering || peering->over()) continue;
    if (peering->remoteEngine() == remoteEngine && peering->peer().get() == peer) return peering.get();
  }
  return nullptr;
}

// The peering to an engine of a peer: the one that lives, or a new one. The peer names the half that it has
// now (remoteLife). A peering of ours that belongs to an earlier half has ended there, though the peer's word
// of it may still be on its way, so it ends here as well.
Result<Peering*> Engine::peering(const control::PeerRef& peer, uint32_t remoteEngine, uint16_t remoteRails,
                                 uint32_t remoteLife) {
  cleanUpPeerings();  // one that failed when nobody used it any more is in nobody's way
  if (Peering* known = livePeering(peer.get(), remoteEngine)) {
    if (!known->isBehind(remoteLife)) return known;
    known->end(
        {Ending::By::peer, Error(Code::remote, "connecting", peer->name() + " has ended these lanes")});
  }
  // That it died is told once, to the peerings there are; it is marked dead before.
  if (!peer->alive()) return peer->reason();
  const auto hole = std::find(peerings_.begin(), peerings_.end(), nullptr);
  const auto number = static_cast<uint32_t>(hole - peerings_.begin());
  if (number >= kPeeringLimit) {
    return Error(Code::resources, "connecting",
                 format("one engine has at most %u peer engines", kPeeringLimit));
  }
  TRY(auto fresh, Peering::create(*this, *this, number, ++lives_, peer, remoteEngine, remoteRails));
  flushQueue_.reserve(peerings_.size() + 1);
  Peering* raw = fresh.get();
  if (hole == peerings_.end()) {
    peerings_.push_back(std::move(fresh));
  } else {
    *hole = std::move(fresh);
  }
  return raw;
}

// Drops peerings that nobody uses and whose other side is gone; the others are kept for the next connection.
void Engine::cleanUpPeerings() {
  for (auto& peering : peerings_) {
    if (peering && peering->comms == 0 && peering->over()) peering.reset();
  }
}

bool Engine::carries(size_t rail) const {
  return std::any_of(peerings_.begin(), peerings_.end(),
                     [&](const auto& peering) { return peering && peering->lanes().upOn(rail); });
}

}  // namespace weft::core
