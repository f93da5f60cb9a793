// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cassert>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/core/comm.h"
#include "src/core/runtime.h"

namespace weft::core {

void Router::add(const std::shared_ptr<Engine>& engine) {
  const std::lock_guard lock(mutex_);
  std::erase_if(engines_, [](const auto& entry) { return entry.second.engine.expired(); });
  engines_[engine->id()].engine = engine;
}

std::vector<Router::Turn> Router::living() {
  const std::lock_guard lock(mutex_);
  std::vector<Turn> turns;
  for (auto& [id, known] : engines_) {
    if (auto engine = known.engine.lock()) turns.push_back({std::move(engine), &known});
  }
  return turns;
}

void Router::onMessage(const control::PeerRef& peer, uint16_t type, std::span<const std::byte> body) {
  ByteReader in(body);
  const EngineHeader header = EngineHeader::decode(&in);
  if (in.failed()) return;
  std::shared_ptr<Engine> engine;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = engines_.find(header.to); found != engines_.end())
      engine = found->second.engine.lock();
  }
  if (!engine) {  // closed meanwhile, which who asks or connects may not have heard
    const auto asked = static_cast<MessageType>(type);
    if (asked == MessageType::askPolled || asked == MessageType::open)
      tellEngine(*peer, {header.from, header.to}, MessageType::engineGone, CommMessage{});
    return;
  }
  Engine::Mail mail;
  mail.peer = peer;
  mail.type = static_cast<MessageType>(type);
  mail.header = header;
  const auto rest = in.raw(in.left());
  mail.body.assign(rest.begin(), rest.end());
  engine->deliver(std::move(mail));
}

void Router::onPeerDead(const control::PeerRef& peer, const Error& reason) {
  for (const auto& [engine, known] : living()) {
    Engine::Mail mail;
    mail.peer = peer;
    mail.peerDied = true;
    mail.reason = reason.message();
    engine->deliver(std::move(mail));
  }
}

// Peers wait for acknowledgements and landings even when NCCL has nothing to do here. So an engine nobody has
// entered since the last tick gets one poll pass; while nothing is outstanding the ticks become rare.
Milliseconds Router::onTick(TimePoint now) {
  constexpr Milliseconds kShortest{2}, kLongest{128};
  dropGivenUp(now);
  constexpr Milliseconds kLookForFreed{500};
  bool busy = false;
  const bool lookForFreed = now - freedLookedAt_ >= kLookForFreed;
  if (lookForFreed) freedLookedAt_ = now;
  for (const Turn& turn : living()) {
    if (lookForFreed) turn.engine->regions().dropFreed();
    busy = nudge(turn, now) || busy;
  }
  pause_ = busy ? kShortest : std::min(kLongest, pause_ * 2);
  return pause_;
}

// That may close a comm, and the engine that was made for it. The hub's thread ends before the runtime does.
void Router::dropGivenUp(TimePoint now) {
  const MustNotFail nobodyToTell;
  pending_->dropExpired(now);
}

// No lock is held: a poll pass may copy GPU memory, and connect lanes. Comms that are over go outside of the
// engine.
bool Router::nudge(const Turn& turn, TimePoint now) const {
  assert(mayBlock());
  Engine& engine = *turn.engine;
  Known& known = *turn.known;
  const Milliseconds watchEvery = std::min(config_.railTimeout, config_.laneTimeout / 2) / 8;
  const bool watching = now - known.watchedAt >= watchEvery;
  const bool called = engine.takeCalled();
  if (called && !watching) return true;
  if (!engine.tryEnter()) return called || watching;  // a look that is due is taken with the next tick
  engine.progress();
  if (watching) {
    engine.watch();
    known.watchedAt = now;
  }
  const MustNotFail nobodyToTell;
  const auto closed = engine.takeClosed();
  const bool busy = engine.tickBusy();
  engine.leave();
  (void)engine.takeCalled();  // that was this thread
  return called || busy;
}

}  // namespace weft::core
