// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/requester.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace softefa {

namespace {

using std::chrono::microseconds;

// The pause before attempt n of a message whose receiver was not ready.
microseconds pauseBefore(uint32_t attempt) {
  return microseconds(std::min(100U << std::min(attempt, 6U), 5000U));
}

PacketKind kindOf(const QueuePair& qp, Operation operation) {
  if (qp.datagrams) return PacketKind::datagram;
  if (operation == Operation::write) return PacketKind::write;
  return operation == Operation::read ? PacketKind::readRequest : PacketKind::send;
}

}  // namespace

void Requester::post(QueuePair& qp, const WorkRequest& work) {
  const uint32_t id = nextId_++;
  Message& message = messages_[id];
  message.qp = &qp;
  message.work = work;
  message.started = Clock::now();
  if (const uint32_t planned = engine_.faults.plannedStatus()) {
    strayAfter(message, engine_.faults.lateness());
    finish(messages_.find(id), static_cast<Status>(planned));
  } else if (qp.state == IBV_QPS_ERR) {
    finish(messages_.find(id), Status::flushed);
  } else {
    sending_.push_back(id);
  }
}

// The packets of a request that the card gives up come down later. They left with the bytes of that time.
void Requester::strayAfter(const Message& message, std::chrono::microseconds time) {
  std::array<Piece, kMaxReceiveSges> pieces;
  size_t count = 0;
  if (time.count() == 0 || message.work.operation == Operation::read) return;
  if (!gather(message, message.work.length, pieces, count)) return;
  Message stray = message;
  stray.silent = true;
  stray.phase = Phase::waiting;
  stray.retryAt = Clock::now() + time;
  for (size_t i = 0; i < count; i++)
    stray.onTheWire.insert(stray.onTheWire.end(), pieces[i].begin(), pieces[i].end());
  messages_.emplace(nextId_++, std::move(stray));
}

// What the hardware refuses before anything leaves.
Status Requester::check(const Message& message) {
  const WorkRequest& work = message.work;
  if (!work.handleKnown || engine_.addresses.gidOf(work.handle) != work.to) {
    engine_.violated(kStrictAh, "qp " + std::to_string(message.qp->qpn) +
                                    ": work names an address handle that was destroyed");
    return Status::badAddressHandle;
  }
  const uint64_t most = work.operation == Operation::send ? kMtu : kMaxRdma;
  return work.length > most ? Status::badLocalLength : Status::ok;
}

// With each poll: while there is nothing to send it touches nothing.
bool Requester::pump(Clock::time_point now) {
  bool sent = false;
  size_t blocked = 0;
  for (const uint32_t id : sending_) {
    const auto at = messages_.find(id);
    if (at == messages_.end() || at->second.phase != Phase::sending) continue;
    Step step = Step::more;
    while (step == Step::more) {
      step = sendPacket(id, at->second, now);
      if (step != Step::blocked) sent = true;
    }
    if (step == Step::blocked) sending_[blocked++] = id;
  }
  sending_.resize(blocked);
  return sent;
}

Requester::Step Requester::failed(uint32_t id, Status status) {
  finish(messages_.find(id), status);
  return Step::ended;
}

Requester::Step Requester::sendPacket(uint32_t id, Message& message, Clock::time_point now) {
  const WorkRequest& work = message.work;
  if (message.offset == 0) {
    if (const Status status = check(message); status != Status::ok) return failed(id, status);
  }
  if (engine_.faults.muted(work.to)) return Step::blocked;
  PacketHeader header = engine_.headerFrom(*message.qp, kindOf(*message.qp, work.operation));
  header.messageId = id;
  header.attempt = message.attempt;
  header.toQpn = work.remoteQpn;
  header.qkey = work.remoteQkey;
  header.hasImm = work.hasImm;
  header.imm = work.imm;
  header.rkey = work.rkey;
  header.address = work.remoteAddress;
  header.offset = static_cast<uint32_t>(message.offset);
  header.total = work.length;
  std::array<Piece, kMaxReceiveSges> pieces;
  size_t count = 0;
  if (work.operation != Operation::read) {
    header.length = static_cast<uint32_t>(std::min<uint64_t>(kMtu, work.length - message.offset));
    if (!gather(message, header.length, pieces, count)) return failed(id, Status::badLocalKey);
  }
  switch (engine_.links.put(work.to, work.remoteQpn, header, std::span(pieces).first(count))) {
    case Links::Sent::yes:
      break;
    case Links::Sent::full:
      return Step::blocked;
    case Links::Sent::noInbox:
      return failed(id, message.qp->datagrams ? Status::ok : Status::badQueuePair);
    case Links::Sent::noHost:
      if (message.qp->datagrams) return failed(id, Status::ok);
      message.phase = Phase::waiting;
      message.hostMissing = true;
      message.retryAt = now + std::chrono::milliseconds(20);
      return Step::ended;
  }
  ++engine_.counters.packetsSent;
  return afterPacket(id, message, header.length);
}

Requester::Step Requester::afterPacket(uint32_t id, Message& message, uint64_t length) {
  message.offset += length;
  message.hostMissing = false;
  if (message.work.operation != Operation::read && message.offset < message.work.length) return Step::more;
  if (message.qp->datagrams) return failed(id, Status::ok);  // done when it has left
  message.phase = Phase::sent;
  return Step::ended;
}

// The next `length` bytes of the message, as pieces of the user's memory.
bool Requester::gather(const Message& message, uint64_t length, std::array<Piece, kMaxReceiveSges>& pieces,
                       size_t& count) {
  const WorkRequest& work = message.work;
  if (message.silent) {
    pieces[count++] = std::span(message.onTheWire).subspan(message.offset, length);
    return true;
  }
  if (work.isInline) {
    pieces[count++] = std::span(work.inlineData).first(length);
    return true;
  }
  uint64_t skip = message.offset;
  for (uint32_t i = 0; i < work.sgeCount; ++i) {
    const ibv_sge& sge = work.sges[i];
    const uint64_t jumped = std::min<uint64_t>(skip, sge.length);
    const uint64_t used = std::min<uint64_t>(length, sge.length - jumped);
    skip -= jumped;
    if (used == 0) continue;
    const auto found = engine_.regions.find(sge.lkey, sge.addr + jumped, used, 0, message.qp->domain);
    if (found.verdict == Regions::Verdict::ended) {
      engine_.violated(kStrictMr, "the work with wr_id " + std::to_string(work.wrId) +
                                      " sends from memory whose registration ended");
    }
    if (found.verdict != Regions::Verdict::ok) return false;
    pieces[count++] = {found.memory, used};
    length -= used;
  }
  return length == 0;
}

// Lands a part of a read in the user's memory.
bool Requester::scatter(const Message& message, uint64_t offset, const std::byte* payload, uint64_t length) {
  for (uint32_t i = 0; i < message.work.sgeCount && length > 0; ++i) {
    const ibv_sge& sge = message.work.sges[i];
    const uint64_t jumped = std::min<uint64_t>(offset, sge.length);
    const uint64_t used = std::min<uint64_t>(length, sge.length - jumped);
    offset -= jumped;
    if (used == 0) continue;
    const auto found =
        engine_.regions.find(sge.lkey, sge.addr + jumped, used, IBV_ACCESS_LOCAL_WRITE, message.qp->domain);
    if (found.verdict == Regions::Verdict::ended) {
      engine_.violated(kStrictMr, "the read with wr_id " + std::to_string(message.work.wrId) +
                                      " lands in memory whose registration ended");
    }
    if (found.verdict != Regions::Verdict::ok) return false;
    std::memcpy(found.memory, payload, used);
    payload += used;
    length -= used;
  }
  return length == 0;
}

void Requester::onAnswer(const PacketHeader& answer, Clock::time_point now) {
  if (answer.sender != engine_.opening) return;
  const auto at = messages_.find(answer.messageId);
  if (at == messages_.end() || at->second.attempt != answer.attempt) return;
  Message& message = at->second;
  const auto status = static_cast<Status>(answer.status);
  const unsigned most = message.qp->rnrRetry;
  if (status != Status::receiverNotReady || (most != kRetryForever && message.attempt >= most)) {
    finish(at, status);
    return;
  }
  message.phase = Phase::waiting;
  message.started = now;  // it answers
  message.retryAt = now + pauseBefore(message.attempt++);
  message.offset = 0;
}

void Requester::onReadData(const PacketHeader& header, const std::byte* payload) {
  if (header.sender != engine_.opening) return;
  const auto at = messages_.find(header.messageId);
  if (at == messages_.end() || at->second.work.operation != Operation::read) return;
  if (!scatter(at->second, header.offset, payload, header.length)) {
    finish(at, Status::badLocalKey);
    return;
  }
  at->second.landed += header.length;
  if (at->second.landed == at->second.work.length) finish(at, Status::ok);
}

void Requester::expire(Clock::time_point now) {
  for (auto at = messages_.begin(); at != messages_.end();) {
    const auto here = at++;
    Message& message = here->second;
    const bool old = now - message.started >= engine_.settings.unresponsive;
    const bool again = message.phase == Phase::waiting && now >= message.retryAt;
    if (again) {
      message.phase = Phase::sending;
      sending_.push_back(here->first);
    }
    if (!old || message.qp->datagrams) continue;
    if (message.hostMissing) {
      finish(here, Status::unreachable);
    } else if (engine_.faults.muted(message.work.to) ||
               !engine_.links.answers(message.work.to, message.work.remoteQpn)) {
      finish(here, Status::unresponsive);
    }
  }
}

void Requester::finish(Messages::iterator at, Status status) {
  const uint32_t id = at->first;
  const Message message = std::move(at->second);
  messages_.erase(at);
  if (message.silent) return;
  if (id < message.qp->youngestDone) ++engine_.counters.outOfOrder;
  message.qp->youngestDone = std::max(message.qp->youngestDone, id);
  completeSend(*message.qp, message.work, status);
}

void Requester::flush(QueuePair& qp) {
  for (auto at = messages_.begin(); at != messages_.end();) {
    const auto here = at++;
    if (here->second.qp != &qp) continue;
    ++engine_.counters.workFlushed;
    finish(here, Status::flushed);
  }
}

void Requester::forget(QueuePair& qp) {
  std::erase_if(messages_, [&](const auto& entry) { return entry.second.qp == &qp; });
}

}  // namespace softefa
