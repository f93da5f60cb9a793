// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>

#include "src/base/log.h"
#include "src/core/engine.h"
#include "src/core/recv_comm.h"

// Mail from peers' engines, handled inside. A message for something that is gone is normal (closing crosses
// everything) and dropped; one that does not decode, or comes from the wrong process, is dropped and counted.
namespace weft::core {

void Engine::handle(Mail& mail) {
  readClock();
  if (mail.peerDied) return handlePeerDeath(mail);
  if (Peering* from = livePeering(mail.peer.get(), mail.header.from)) from->heard();
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
    case MessageType::localAddress:
    case MessageType::ended:
    case MessageType::waitsFor:
      if (Peering* peering = peeringOf(mail)) handleForPeering(*peering, mail);
      return;
    case MessageType::askPolled:
      return answerAsked(mail);
    default:
      return handleForComm(mail);
  }
}

// The peering that a message is about. Numbers of peerings come again, and two may be between the same
// engines: one that has ended, and the next. A peer that knows our count names it (toLife). A peer that does
// not know it yet names its own (fromLife), which we know from its half.
Peering* Engine::peeringOf(const Mail& mail) {
  const EngineHeader& about = mail.header;
  for (auto& peering : peerings_) {
    if (!peering || peering->remoteGone()) continue;
    if (peering->remoteEngine() != about.from || peering->peer() != mail.peer) continue;
    const bool meant = about.toLife != 0 ? about.toLife == peering->life()
                                         : about.fromLife != 0 && about.fromLife == peering->remoteLife();
    if (meant) return peering.get();
  }
  return nullptr;
}

// The peer asks because one of its rails is silent, and wants to know whether ours would report anything. So
// all rails are polled before the answer.
void Engine::answerAsked(const Mail& mail) {
  ByteReader body(mail.body);
  CommMessage question;
  if (!decodeBody(&body, &question)) return;
  for (size_t rail = 0; rail < queues_.size(); rail++) drain(rail);
  if (Peering* peering = peeringOf(mail)) return peering->tell(MessageType::tellPolled, question);
  tellEngine(*mail.peer, {mail.header.from, id_, mail.header.fromLife, mail.header.toLife},
             MessageType::tellPolled, question);
}

// What a peer sent before it left may be here, and unread: the control link is another way. So it is read
// before its comms end, where one of them may want it. A poll takes a part of what a connection holds, and at
// times looks at none; a lane that broke was read to its end.
void Engine::readAllFrom(const Peering& peering) {
  constexpr int kPolls = 128;
  bool wanted = false;
  comms_.each([&](const CommBase& comm) {
    wanted = wanted || (&comm.peering() == &peering && comm.asRecv() && comm.asRecv()->mayGetMore());
  });
  if (!wanted) return;
  for (int i = 0; i == 0 || (i < kPolls && peering.lanes().up() > 0); i++)
    for (size_t rail = 0; rail < queues_.size(); rail++) drain(rail);
}

void Engine::handlePeerDeath(const Mail& mail) {
  for (auto& peering : peerings_) {
    if (!peering || peering->peer() != mail.peer) continue;
    readAllFrom(*peering);
    peering->end({Ending::By::gone, Error(Code::remote, "watching peers",
                                          mail.peer->name() + " is gone (rail " +
                                              peering->lanes().railNames() + "): " + mail.reason)});
  }
}

void Engine::handleEngineGone(const Mail& mail) {
  for (auto& peering : peerings_) {
    if (!peering || peering->remoteEngine() != mail.header.from || peering->peer() != mail.peer) continue;
    readAllFrom(*peering);
    peering->peerEngineGone();
    comms_.each([&](CommBase& comm) {
      if (&comm.peering() == peering.get()) comm.onPeerClosed(std::nullopt);
    });
    peering->endIfLeaving();
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
  } else if (mail.type == MessageType::localAddress && decodeBody(&body, &lane)) {
    peering.sameHost().ask(lane.address);
  } else if (mail.type == MessageType::waitsFor && decodeBody(&body, &ended)) {
    peering.hearWait({ended.reason, ended.comm});
    waits_.lookSoon();
  } else if (mail.type == MessageType::tellPolled && decodeBody(&body, &plain)) {
    peering.lanes().answered(TimePoint(Nanoseconds(static_cast<int64_t>(plain.number))));
  } else if (mail.type >= MessageType::laneRetire) {
    if (!peering.failover().onMessage(mail.type, &body)) counters_.foreignNotes++;
  } else {
    counters_.foreignNotes++;
  }
}

// The acceptor of this connection has given it up. It could not say "closed" then, as the connector's number
// was not known before this message.
void Engine::answerStray(const Mail& mail) const {
  ByteReader body(mail.body);
  OpenMessage open;
  if (mail.type == MessageType::open && decodeBody(&body, &open))
    tellEngine(*mail.peer, {mail.header.from, id_}, MessageType::closed, CommMessage{open.sender, 0});
}

void Engine::handleForComm(const Mail& mail) {
  ByteReader peek(mail.body);
  CommBase* comm = comms_.find(peek.get<uint32_t>());
  if (!comm) return answerStray(mail);
  if (comm->peering().peer() != mail.peer || comm->peering().remoteEngine() != mail.header.from) {
    counters_.foreignNotes++;
    return;
  }
  ByteReader body(mail.body);
  FailedMessage failure;
  CommMessage plain;
  if (mail.type == MessageType::closed && decodeBody(&body, &plain)) {
    comm->onPeerClosed(plain.number);
  } else if (mail.type == MessageType::failed && decodeBody(&body, &failure)) {
    comm->end(
        {Ending::By::peer, Error(Code::remote, comm->peering().peer()->name() + " reports", failure.reason)});
  } else {
    comm->onMessage(mail.type, &body);
  }
}

// So a halt is followed from process to process, and each of them can name who is at its end.
void Engine::tellWait(const Culprit& culprit) {
  for (auto& peering : peerings_)
    if (peering) peering->tellWait(culprit);
}

// What takes too long:

void Engine::lookAtWaits() {
  const Milliseconds said = config().waitWarn;
  if (!waits_.begins(now_, said)) return;
  WaitLook look = waits_.look(now_);
  comms_.each([&](CommBase& comm) {
    if (!comm.failed()) comm.noteWaits(&look);
  });
  tellWait(waits_.judge(&look));
  if (!waits_.mustWarn(look, said)) return;
  std::vector<CommReport> reports;
  comms_.each([&](CommBase& comm) {
    if (!comm.failed()) reports.push_back(comm.describe());
  });
  WaitWatch::warn(deviceName(), reports, look);
}

void Engine::watch() {
  readClock();
  for (size_t i = 0; i < peerings_.size(); i++) {
    if (!peerings_[i]) continue;
    peerings_[i]->watch(now_);
    peerings_[i]->tellRails();
  }
  flushLanes_.watch(now_);
  earlyMemory_.tidy();
  endIdlePeerings();
  lookAtWaits();
  comms_.each([](CommBase& comm) { comm.tellSums(); });
  if (options_.stats) {
    options_.stats->beat();
    comms_.each([](CommBase& comm) { comm.publish(); });
  }
  if (now_ - commsWatchedAt_ < options_.config->laneTimeout / 8) return;
  commsWatchedAt_ = now_;
  comms_.each([&](CommBase& comm) {
    if (!comm.failed()) comm.watch(now_);
  });
}

}  // namespace weft::core
