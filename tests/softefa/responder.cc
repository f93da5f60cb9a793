// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/responder.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

namespace softefa {

namespace {

constexpr auto kForgetAfter = std::chrono::seconds(30);
constexpr size_t kFootprints = kMaxSends;                      // as many as a queue pair has under way
constexpr uint64_t kLine = 64;                                 // what memory takes at once
constexpr auto kScatterPause = std::chrono::microseconds(50);  // so that whoever looks can see it

// memcpy may put the first bytes down last. Each store here is kept from passing the one before.
void copyInOrder(std::byte* target, const std::byte* source, uint64_t length) {
  while (length > 0) {
    const bool word =
        reinterpret_cast<uintptr_t>(target) % sizeof(uint64_t) == 0 && length >= sizeof(uint64_t);
    const uint64_t step = word ? sizeof(uint64_t) : 1;
    if (word) {
      std::memcpy(target, source, sizeof(uint64_t));
    } else {
      *target = *source;
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    target += step;
    source += step;
    length -= step;
  }
}

uint64_t capacityOf(const ReceiveWork& work) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < work.sgeCount; ++i) bytes += work.sges[i].length;
  return bytes;
}

}  // namespace

void Responder::onPacket(const PacketHeader& header, const std::byte* payload, Clock::time_point now) {
  QueuePair* const qp = engine_.find(header.toQpn);
  const bool datagram = header.kind == PacketKind::datagram;
  const auto begun = assemblies_.find(keyOf(header));
  const bool lost = begun != assemblies_.end() && begun->second.qp != qp;
  if (lost || !qp || !qp->hears() || qp->qkey != header.qkey || qp->datagrams != datagram) {
    if (datagram) {
      ++engine_.counters.datagramsDropped;
      return;
    }
    if (begun == assemblies_.end()) return answer(header, Status::badQueuePair);
    return breakOff(begun, header);
  }
  switch (header.kind) {
    case PacketKind::send:
    case PacketKind::datagram:
      onSend(*qp, header, payload);
      break;
    case PacketKind::write:
      onWrite(*qp, header, payload, now);
      break;
    case PacketKind::readRequest:
      onReadRequest(*qp, header);
      break;
    case PacketKind::readResponse:
    case PacketKind::answer:
      break;  // the requester's
  }
}

// A write that had begun to arrive is not refused but broken off, at once and for good: another queue pair
// may have the number by now.
void Responder::breakOff(Assemblies::iterator begun, const PacketHeader& header) {
  Assembly& assembly = begun->second;
  assembly.qp = nullptr;
  assembly.received += header.length;
  if (!std::exchange(assembly.failed, true)) answer(header, Status::remoteAbort);
  if (assembly.received >= header.total) assemblies_.erase(begun);
}

void Responder::onSend(QueuePair& qp, const PacketHeader& header, const std::byte* payload) {
  if (qp.receives.empty()) {
    if (qp.datagrams) {
      ++engine_.counters.datagramsDropped;
    } else {
      ++engine_.counters.notReady;
      answer(header, Status::receiverNotReady);
    }
    return;
  }
  const ReceiveWork work = qp.receives.front();
  qp.receives.pop_front();
  const uint64_t skip = qp.datagrams ? kGrhBytes : 0;
  if (capacityOf(work) < skip + header.length) {
    completeReceive(qp, header, work, Status::badLocalLength, 0);
    answer(header, Status::badRemoteLength);
    return;
  }
  const Status placed = place(qp, work, skip, payload, header.length);
  completeReceive(qp, header, work, placed, static_cast<uint32_t>(skip + header.length));
  answer(header, placed == Status::ok ? Status::ok : Status::badRemoteStatus);
}

// Copies a message into a posted receive, leaving `skip` bytes as they are.
Status Responder::place(QueuePair& qp, const ReceiveWork& work, uint64_t skip, const std::byte* payload,
                        uint64_t length) {
  for (uint32_t i = 0; i < work.sgeCount && length > 0; ++i) {
    const ibv_sge& sge = work.sges[i];
    const uint64_t jumped = std::min<uint64_t>(skip, sge.length);
    const uint64_t used = std::min<uint64_t>(length, sge.length - jumped);
    skip -= jumped;
    if (used == 0) continue;
    const auto found =
        engine_.regions.find(sge.lkey, sge.addr + jumped, used, IBV_ACCESS_LOCAL_WRITE, qp.domain);
    if (found.verdict == Regions::Verdict::ended) {
      engine_.violated(kStrictMr, "the receive with wr_id " + std::to_string(work.wrId) +
                                      " is in memory whose registration ended");
    }
    if (found.verdict != Regions::Verdict::ok) return Status::badLocalKey;
    copyIn(found.memory, payload, used);
    payload += used;
    length -= used;
  }
  return Status::ok;
}

// Only a NIC that promises order puts a packet's bytes down from front to back; with the fault `scatter`
// another one shows what it may do.
void Responder::copyIn(std::byte* target, const std::byte* source, uint64_t length) const {
  if (engine_.settings.generation == Generation::inOrder) {
    copyInOrder(target, source, length);
    return;
  }
  if (!engine_.faults.scatter()) {
    std::memcpy(target, source, length);
    return;
  }
  for (uint64_t end = length; end > 0;) {
    const uint64_t begin = (end - 1) / kLine * kLine;
    std::memcpy(target + begin, source + begin, end - begin);
    if (end == length && begin > 0) std::this_thread::sleep_for(kScatterPause);
    end = begin;
  }
}

void Responder::completeReceive(QueuePair& qp, const PacketHeader& header, const ReceiveWork& work,
                                Status status, uint32_t length) {
  Completion completion;
  completion.wrId = work.wrId;
  completion.status = status;
  completion.ofSend = false;
  completion.opcode = header.kind == PacketKind::write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  completion.byteLength = length;
  completion.imm = header.imm;
  completion.flags = header.hasImm ? static_cast<unsigned>(IBV_WC_WITH_IMM) : 0;
  if (qp.datagrams) completion.flags |= IBV_WC_GRH;
  completion.qpn = qp.qpn;
  completion.sourceQpn = header.fromQpn;
  completion.sourceGid = header.from;
  completion.sourceHandle = engine_.addresses.find(qp.domain, header.from).value_or(kNoAddressHandle);
  completion.unsolicited = header.kind == PacketKind::write && qp.unsolicited;
  completion.life = qp.life;
  qp.receiveCq->push(std::move(completion));
}

// RDMA of somebody who has no address handle here is refused: the hardware could not answer it.
std::optional<Status> Responder::stranger(const QueuePair& qp, const PacketHeader& header) {
  if (engine_.addresses.find(qp.domain, header.from)) return std::nullopt;
  engine_.violated(kStrictAh,
                   "RDMA for qp " + std::to_string(qp.qpn) + " from a NIC without an address handle here");
  return Status::unknownPeer;
}

Regions::Found Responder::findRemote(const QueuePair& qp, const PacketHeader& header, uint64_t offset,
                                     uint64_t length, unsigned access) {
  // Judged by the whole message: a message that does not fit lands nowhere.
  const auto whole = engine_.regions.find(header.rkey, header.address, header.total, access, qp.domain);
  if (whole.verdict == Regions::Verdict::ended) {
    engine_.violated(kStrictMr, "RDMA for qp " + std::to_string(qp.qpn) +
                                    " to memory whose registration ended, key " +
                                    std::to_string(header.rkey));
  }
  if (whole.verdict != Regions::Verdict::ok) return whole;
  return engine_.regions.find(header.rkey, header.address + offset, length, access, qp.domain);
}

void Responder::onWrite(QueuePair& qp, const PacketHeader& header, const std::byte* payload,
                        Clock::time_point now) {
  const Key key = keyOf(header);
  Assembly& assembly = assemblies_[key];
  assembly.qp = &qp;
  assembly.received += header.length;
  assembly.lastPart = now;
  Status status = assembly.failed ? Status::ok : landWrite(qp, header, payload);
  const bool complete = assembly.received >= header.total;
  if (status == Status::ok && !assembly.failed) {
    if (!complete) return;
    status = notify(qp, header);
    answer(header, status);
  } else if (!assembly.failed) {
    assembly.failed = true;
    answer(header, status);
  }
  if (complete) assemblies_.erase(key);
}

Status Responder::landWrite(QueuePair& qp, const PacketHeader& header, const std::byte* payload) {
  if (const auto refused = stranger(qp, header)) return *refused;
  if (header.total == 0) return Status::ok;
  const auto found = findRemote(qp, header, header.offset, header.length, IBV_ACCESS_REMOTE_WRITE);
  if (found.verdict != Regions::Verdict::ok) return Status::badRemoteAddress;
  checkOverlap(header);
  copyIn(found.memory, payload, header.length);
  engine_.counters.bytesWritten += header.length;
  return Status::ok;
}

// Nothing says which of two writes that are under way at once lands last. It did harm where bytes of the
// older one come down on those of the newer.
void Responder::checkOverlap(const PacketHeader& header) {
  if ((engine_.settings.strict & kStrictOverlap) == 0) return;
  Footprints& known = footprints_[{header.sender, header.fromQpn}];
  known.lastPart = Clock::now();
  known.writes.try_emplace(header.messageId, Footprint{header.address, header.total});
  const uint64_t begin = header.address + header.offset, end = begin + header.length;
  for (auto newer = known.writes.upper_bound(header.messageId); newer != known.writes.end(); ++newer) {
    const Footprint& other = newer->second;
    if (end <= other.address || other.address + other.length <= begin) continue;
    engine_.violated(kStrictOverlap, "a packet of " + std::to_string(header.length) + " bytes from qp " +
                                         std::to_string(header.fromQpn) + " lands on a newer write of " +
                                         std::to_string(other.length) + " bytes");
  }
  if (known.writes.size() > kFootprints) known.writes.erase(known.writes.begin());
}

// Tells the application about a write that asked for it.
Status Responder::notify(QueuePair& qp, const PacketHeader& header) {
  if (!header.hasImm) return Status::ok;
  ReceiveWork work;
  if (!qp.unsolicited) {
    if (qp.receives.empty()) {
      ++engine_.counters.notReady;
      return Status::receiverNotReady;
    }
    work = qp.receives.front();
    qp.receives.pop_front();
  }
  completeReceive(qp, header, work, Status::ok, static_cast<uint32_t>(header.total));
  return Status::ok;
}

void Responder::onReadRequest(QueuePair& qp, const PacketHeader& header) {
  if (const auto refused = stranger(qp, header)) {
    answer(header, *refused);
    return;
  }
  reads_.push_back({header});
}

bool Responder::sendReadData(ReadJob& job, bool& done) {
  const PacketHeader& request = job.request;
  if (engine_.faults.muted(request.from)) return false;
  QueuePair* const qp = engine_.find(request.toQpn);
  if (!qp || !qp->hears()) {
    done = true;
    answer(request, Status::remoteAbort);
    return true;
  }
  PacketHeader header = engine_.headerFrom(*qp, PacketKind::readResponse);
  header.sender = request.sender;
  header.messageId = request.messageId;
  header.attempt = request.attempt;
  header.toQpn = request.fromQpn;
  header.offset = static_cast<uint32_t>(job.offset);
  header.total = request.total;
  header.length = static_cast<uint32_t>(std::min<uint64_t>(kMtu, request.total - job.offset));
  Regions::Found found{Regions::Verdict::ok};
  if (request.total > 0) found = findRemote(*qp, request, job.offset, header.length, IBV_ACCESS_REMOTE_READ);
  if (found.verdict != Regions::Verdict::ok) {
    done = true;
    answer(request, Status::badRemoteAddress);
    return true;
  }
  const Piece piece{found.memory, header.length};
  const auto sent =
      engine_.links.put(request.from, request.fromQpn, header, {&piece, header.length > 0 ? 1U : 0U});
  if (sent == Links::Sent::full) return false;
  ++engine_.counters.packetsSent;
  job.offset += header.length;
  done = job.offset >= request.total || sent != Links::Sent::yes;
  return true;
}

void Responder::answer(const PacketHeader& header, Status status) {
  if (header.kind == PacketKind::datagram) return;
  PacketHeader reply;
  reply.kind = PacketKind::answer;
  reply.status = static_cast<uint16_t>(status);
  reply.messageId = header.messageId;
  reply.attempt = header.attempt;
  reply.from = engine_.identity.gid;
  reply.sender = header.sender;
  reply.fromQpn = header.toQpn;
  reply.toQpn = header.fromQpn;
  answers_.emplace_back(header.from, reply);
}

bool Responder::pump() {
  bool sent = false;
  size_t blocked = 0;
  for (const auto& [to, reply] : answers_) {
    if (engine_.faults.muted(to) || engine_.links.put(to, reply.toQpn, reply, {}) == Links::Sent::full) {
      answers_[blocked++] = {to, reply};
    } else {
      ++engine_.counters.packetsSent;
      sent = true;
    }
  }
  answers_.resize(blocked);
  for (size_t left = reads_.size(); left > 0; --left) {
    ReadJob job = reads_.front();
    reads_.pop_front();
    bool done = false;
    while (!done && sendReadData(job, done)) sent = true;
    if (!done) reads_.push_back(job);
  }
  return sent;
}

void Responder::forgetOld(Clock::time_point now) {
  const auto old = [&](const auto& entry) { return now - entry.second.lastPart > kForgetAfter; };
  std::erase_if(assemblies_, old);
  std::erase_if(footprints_, old);
}

void Responder::forget(const QueuePair& qp) {
  for (auto& [key, assembly] : assemblies_)
    if (assembly.qp == &qp) assembly.qp = nullptr;
}

}  // namespace softefa
