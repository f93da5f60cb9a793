// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>

#include "src/base/log.h"
#include "src/core/comm.h"
#include "src/core/engine.h"

// Mail from peers' engines, handled inside. A message for something that is gone is normal (closing crosses
// everything) and dropped; one that does not decode, or comes from the wrong process, is dropped and counted.
namespace weft::core {

void Engine::handle(Mail& mail) {
  readClock();
  if (mail.peerDied) return handlePeerDeath(mail);
  switch (mail.type) {
    case MessageType::engineGone:
      return handleEngineGone(mail);
    case MessageType::announce:
    case MessageType::announced:
    case MessageType::withdraw:
    case MessageType::laneRetire:
    case MessageType::laneRetired:
    case MessageType::missing:
    case MessageType::laneAddress:
    case MessageType::tellPolled:
    case MessageType::laneConnected:
    case MessageType::ended:
      if (Peering* peering = peeringOf(mail)) handleForPeering(*peering, mail);
      return;
    case MessageType::askPolled:
      return answerAsked(mail);
    default:
      return handleForComm(mail);
  }
}

// Numbers of peerings come again, and two may be between the same engines: one that has ended, and the next.
Peering* Engine::peeringOf(const Mail& mail) {
  if (mail.life == 0) return livePeering(mail.peer.get(), mail.fromEngine);
  for (auto& peering : peerings_) {
    if (!peering || peering->life() != mail.life || peering->remoteGone()) continue;
    if (peering->remoteEngine() == mail.fromEngine && peering->peer() == mail.peer) return peering.get();
  }
  return nullptr;
}

// Where there are several lanes, after a poll.
void Engine::answerAsked(const Mail& mail) {
  Peering* peering = peeringOf(mail);
  if (peering && peering->failover()) return handleForPeering(*peering, mail);
  ByteReader body(mail.body);
  CommMessage question;
  if (!decodeBody(&body, &question)) return;
  tellEngine(*mail.peer, {mail.fromEngine, id_}, MessageType::tellPolled, question);
}

void Engine::handlePeerDeath(const Mail& mail) {
  for (auto& peering : peerings_) {
    if (!peering || peering->peer() != mail.peer) continue;
    std::string rails;
    for (size_t i = 0; i < peering->laneCount(); i++) rails += (i ? ", " : "") + peering->lane(i).railName();
    peering->end(
        {Ending::By::gone, Error(Code::remote, "watching peers",
                                 mail.peer->name() + " is gone (rail " + rails + "): " + mail.reason)});
  }
}

void Engine::handleEngineGone(const Mail& mail) {
  for (auto& peering : peerings_) {
    if (!peering || peering->remoteEngine() != mail.fromEngine || peering->peer() != mail.peer) continue;
    peering->peerEngineGone();
    comms_.each([&](CommBase& comm) {
      if (&comm.peering() == peering.get()) comm.onPeerClosed();
    });
    peering->endDoubt();
    peering->failIfLeaving();
  }
  cleanUpPeerings();
}

void Engine::handleForPeering(Peering& peering, const Mail& mail) {
  ByteReader body(mail.body);
  MemoryNotice notice;
  CommMessage plain;
  LaneMessage lane;
  FailedMessage ended;
  if (mail.type == MessageType::announce && decodeBody(&body, &notice)) {
    if (Status status = peering.memory().import(notice); !status)
      return peering.end({Ending::By::us, status.takeError()});
    peering.tell(MessageType::announced, CommMessage{notice.id, 0});
  } else if (mail.type == MessageType::announced && decodeBody(&body, &plain)) {
    peering.memory().acknowledged(plain.comm);
  } else if (mail.type == MessageType::withdraw && decodeBody(&body, &plain)) {
    peering.memory().forget(plain.comm);
  } else if (mail.type == MessageType::ended && decodeBody(&body, &ended)) {
    peering.onEnded(ended);
  } else if (mail.type == MessageType::laneConnected && decodeBody(&body, &lane)) {
    peering.onLaneConnected(lane);
  } else if (mail.type == MessageType::tellPolled && decodeBody(&body, &plain)) {
    peering.peerAnswered(plain.number);
    if (peering.failover()) peering.failover()->peerPolled(plain.number);
  } else if (mail.type >= MessageType::laneRetire) {
    if (!peering.failover() || !peering.failover()->onMessage(mail.type, &body)) counters_.foreignNotes++;
  } else {
    counters_.foreignNotes++;
  }
}

// Who opens a connection whose acceptor gave up meanwhile had not told us its number by then, so nothing said
// "closed" to it.
void Engine::answerStray(const Mail& mail) const {
  ByteReader body(mail.body);
  OpenMessage open;
  if (mail.type == MessageType::open && decodeBody(&body, &open))
    tellEngine(*mail.peer, {mail.fromEngine, id_}, MessageType::closed, CommMessage{open.sender, 0});
}

void Engine::handleForComm(const Mail& mail) {
  ByteReader peek(mail.body);
  CommBase* comm = comms_.find(peek.get<uint32_t>());
  if (!comm) return answerStray(mail);
  if (comm->peering().peer() != mail.peer || comm->peering().remoteEngine() != mail.fromEngine) {
    counters_.foreignNotes++;
    return;
  }
  ByteReader body(mail.body);
  FailedMessage failure;
  CommMessage plain;
  if (mail.type == MessageType::closed && decodeBody(&body, &plain)) {
    comm->onPeerClosed();
  } else if (mail.type == MessageType::failed && decodeBody(&body, &failure)) {
    comm->end(
        {Ending::By::peer, Error(Code::remote, comm->peering().peer()->name() + " reports", failure.reason)});
  } else {
    comm->onMessage(mail.type, &body);
  }
}

// What takes too long:

void Engine::watch() {
  readClock();
  for (size_t i = 0; i < peerings_.size(); i++) {
    Peering* peering = peerings_[i].get();
    if (!peering || peering->ending()) continue;
    for (size_t lane = 0; lane < peering->laneCount(); lane++)
      if (peering->lane(lane).takePeerSeen()) peering->peer()->seenOnFabric(now_);
    peering->watchDoubt(now_);
    if (peering->failover()) {
      peering->failover()->watch(now_);
    } else {
      watchOnlyLane(*peering);
    }
  }
  for (auto& lane : flushLanes_)
    if (lane && (lane->up() || lane->state() == LaneState::connecting)) watchFlushLane(*lane);
  if (now_ - commsWatchedAt_ < options_.config->laneTimeout / 8) return;
  commsWatchedAt_ = now_;
  comms_.each([&](CommBase& comm) {
    if (!comm.failed()) comm.watch(now_);
  });
}

// A lane that holds work of ours and shows no sign of life is dead, unless the peer's whole process is
// silent: then the control link decides. Every byte outstanding buys time, so a slow rail is not mistaken for
// a dead one. With several lanes Failover::watch has rules of its own.
void Engine::watchOnlyLane(Peering& peering) {
  Lane& lane = peering.lane(0);
  const TimePoint since = peering.peer()->settled() ? lane.stalledSince(now_) : TimePoint{};
  if (since == TimePoint{} || !lane.up()) return lane.restartStallClock(now_);
  if (now_ - since < options_.config->laneTimeout + slowest(lane.outstandingBytes())) return;
  peering.laneFailed(
      lane, format("nothing moved for %lld ms with %llu bytes posted, though the process answers",
                   static_cast<long long>(std::chrono::duration_cast<Milliseconds>(now_ - since).count()),
                   static_cast<unsigned long long>(lane.outstandingBytes())));
}

}  // namespace weft::core
