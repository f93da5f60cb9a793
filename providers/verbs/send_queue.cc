// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/send_queue.h"

#include <algorithm>
#include <arpa/inet.h>
#include <bit>
#include <cerrno>
#include <utility>

#include "providers/verbs/endpoint.h"
#include "providers/verbs/memory.h"
#include "providers/verbs/words.h"

// Posting bursts, and unfolding an entry into the works that it stands for.
namespace weft::verbs {

namespace {

// A large work gets an entry of its own, so that its sender can go on meanwhile.
constexpr size_t kLargeBytes = 256 << 10;

ibv_wr_opcode opcodeOf(Opcode op) {
  switch (op) {
    case Opcode::read:
      return IBV_WR_RDMA_READ;
    case Opcode::writeNotify:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    default:
      return IBV_WR_RDMA_WRITE;
  }
}

}  // namespace

SendQueue::SendQueue(VerbsQueue& queue, VerbsEndpoint& lane, uint32_t depth)
    : queue_(queue), lane_(lane), number_(queue.newNumber()), depth_(depth) {}

Result<std::unique_ptr<SendQueue>> SendQueue::create(VerbsQueue& queue, VerbsEndpoint& lane, uint32_t depth) {
  auto made = std::make_unique<SendQueue>(queue, lane, depth);
  made->ring_.resize(std::bit_ceil(size_t{depth} + 1));
  TRY(made->pair_, QueuePair::create(queue.objects(), queue.device().address(), depth + 1));
  queue.add(made->pairNumber(), made.get());
  return made;
}

// Works that are not handed out keep their room until the queue pair is drained (LeavingPairs).
SendQueue::~SendQueue() {
  queue_.forget(this);
  size_t requests = 0;
  for (; unfolded_ != posted_; unfolded_++) requests += slot(unfolded_).purpose != Purpose::marker;
  if (dialled_) {
    queue_.letGo(std::move(pair_), requests);
  } else {
    queue_.give(requests);
    queue_.device().dialer().bury(std::move(pair_));
  }
}

Status SendQueue::dial(const LaneAddress& peer, TimePoint deadline) {
  dialled_ = true;
  return queue_.device().dialer().dial({pair_, peer, queue_.mailbox(), number_, deadline});
}

void SendQueue::goApart(uint32_t above) {
  apart_ = true;
  apartAbove_ = above;
}

bool SendQueue::isApart(const Work& work) const {
  return apart_ && work.op == Opcode::writeNotify && (work.length > apartAbove_ || work.length == 0);
}

std::optional<uint64_t> SendQueue::lengthOf(const ibv_wc& entry) {
  if (!apart_ || entry.byte_len > 0) return entry.byte_len;
  if (announced_) return *std::exchange(announced_, std::nullopt);
  announced_ = ntohl(entry.imm_data);
  return std::nullopt;
}

// Requests that may be posted, here and in the Queue.
size_t SendQueue::room() const {
  return std::min(depth_ - std::min<size_t>(outstanding(), depth_), queue_.room());
}

// The number of works that fit into a burst and into the room.
size_t SendQueue::fitting(std::span<const Work> works) const {
  const size_t most = std::min(kBurst, room());
  if (!apart_) return std::min(works.size(), most);
  size_t count = 0;
  for (size_t used = 0; count < works.size(); count++) {
    used += requestsOf(works[count]);
    if (used > most) break;
  }
  return count;
}

size_t SendQueue::post(std::span<const Work> works, int* refusal) {
  *refusal = 0;
  works = works.first(fitting(works));
  if (works.empty()) return 0;
  Burst burst;
  for (const Work& work : works) {
    if (isApart(work)) [[unlikely]]
      addApart(work, &burst);
    else
      add(work, work.unsignaled ? Purpose::unsignaled : Purpose::work, &burst);
    if (wantsEntry(work, &work == &works.back()))
      burst.requests[burst.count - 1].send_flags |= IBV_SEND_SIGNALED;
  }
  burst.requests[burst.count - 1].next = nullptr;
  ibv_send_wr* refused = nullptr;
  const int code = ibv_post_send(pair_->get(), burst.requests.data(), &refused);
  if (code == 0 || !refused) [[likely]] {
    posted_ += static_cast<uint32_t>(burst.count);
    queue_.take(burst.count);
    return works.size();
  }
  // The refused request may be the one that asked for an entry; then the next burst asks.
  signaledUnposted_ = true;
  const size_t taken = keep(static_cast<size_t>(refused - burst.requests.data()));
  // Half a work cannot be taken back, and the target would take the other half for a part of the next work.
  const bool half = refused != burst.requests.data() && slot(posted_ - 1).purpose == Purpose::part;
  if (half || (code != ENOMEM && code != EAGAIN)) *refusal = code;
  return taken;
}

// The card took only `requests` of a burst. Returns the number of works that they complete.
size_t SendQueue::keep(size_t requests) {
  size_t works = 0;
  for (size_t i = 0; i < requests; i++) works += slot(posted_++).purpose != Purpose::part;
  queue_.take(requests);
  return works;
}

void SendQueue::add(const Work& work, Purpose purpose, Burst* burst) {
  const size_t i = burst->count++;
  const uint32_t sequence = posted_ + static_cast<uint32_t>(i);
  ibv_send_wr& request = burst->requests[i];
  fill(work, &request, &burst->pieces[i]);
  request.wr_id = number_ << 32 | sequence;
  request.next = &request + 1;
  slot(sequence) = {work.context, purpose};
}

// The three requests of send_queue.h, in order.
void SendQueue::addApart(const Work& work, Burst* burst) {
  Work data = work;
  data.op = Opcode::write;
  add(data, Purpose::part, burst);
  Work empty = work;
  empty.length = 0;
  empty.imm = static_cast<uint32_t>(work.length);
  add(empty, Purpose::part, burst);
  empty.imm = work.imm;
  add(empty, work.unsignaled ? Purpose::unsignaled : Purpose::work, burst);
}

void SendQueue::fill(const Work& work, ibv_send_wr* request, ibv_sge* piece) const {
  const auto* memory = static_cast<const VerbsMemory*>(work.memory);
  const bool fits = work.length > 0 && work.length <= pair_->inlineBytes();
  piece->addr = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(work.local));
  piece->length = static_cast<uint32_t>(work.length);
  piece->lkey = memory ? memory->localKey() : 0;
  request->sg_list = piece;
  request->num_sge = work.length > 0 ? 1 : 0;
  request->opcode = opcodeOf(work.op);
  request->send_flags = fits && work.op != Opcode::read && memory->host() ? IBV_SEND_INLINE : 0;
  request->imm_data = htonl(work.imm);
  request->wr.rdma.remote_addr = work.remote.base + work.remoteOffset;
  request->wr.rdma.rkey = static_cast<uint32_t>(work.remote.key);
}

// The last request of a burst asks for an entry. Where the burst and all requests since the last entry are
// unsignaled, the card is asked only often enough that slots come back. While the Queue runs short of room
// every burst asks: lanes that fall silent could otherwise keep room that others wait for.
bool SendQueue::wantsEntry(const Work& work, bool last) {
  unsignalled_ += static_cast<uint32_t>(requestsOf(work));
  signaledUnposted_ |= !work.unsignaled;
  bytesUnsignalled_ += work.length;
  const bool due = signaledUnposted_ || unsignalled_ >= depth_ / 2 || !queue_.roomy();
  const bool large = signaledUnposted_ && bytesUnsignalled_ >= kLargeBytes;
  if (!large && !(last && due)) return false;
  unsignalled_ = 0;
  signaledUnposted_ = false;
  bytesUnsignalled_ = 0;
  return true;
}

bool SendQueue::finished(const ibv_wc& entry) {
  if (entry.wr_id >> 32 != (number_ & UINT32_MAX)) return false;
  const uint32_t upTo = static_cast<uint32_t>(entry.wr_id) + 1;
  if (static_cast<int32_t>(upTo - unfolded_) <= 0) return false;  // condemned meanwhile
  judged_ = upTo;
  verdict_ = entry.status;
  if (verdict_ != IBV_WC_SUCCESS) [[unlikely]]
    lane_.lost(EIO, statusWords(verdict_, entry.vendor_err));
  return true;
}

bool SendQueue::unfold(Completion* out) {
  while (unfolded_ != judged_) {
    const Posted work = slot(unfolded_++);
    const bool ok = verdict_ == IBV_WC_SUCCESS;
    if (work.purpose == Purpose::marker) [[unlikely]] {
      markerOut_ = false;
      lane_.markerBack(ok);
      continue;
    }
    queue_.give(1);
    if (work.purpose == Purpose::part || (ok && work.purpose == Purpose::unsignaled)) continue;
    *out = lane_.about(CompletionKind::sent, ok ? 0 : statusErrno(verdict_));
    out->context = work.context;
    if (!ok) queue_.explainNow(*out, lane_.failureWords());
    return true;
  }
  return false;
}

// A write of nothing needs no memory at either end.
void SendQueue::postMarker() {
  Work nothing;
  ibv_send_wr request{};
  ibv_sge piece{};
  fill(nothing, &request, &piece);
  request.wr_id = number_ << 32 | posted_;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(pair_->get(), &request, &refused) != 0) return;
  slot(posted_++) = {0, Purpose::marker};
  markerOut_ = true;
}

void SendQueue::condemnOutstanding() {
  for (; unfolded_ != posted_; unfolded_++) {
    const Posted& work = slot(unfolded_);
    if (work.purpose == Purpose::marker) continue;
    queue_.give(1);
    if (work.purpose == Purpose::part) continue;
    Completion completion = lane_.about(CompletionKind::sent, ECANCELED);
    completion.context = work.context;
    queue_.report(completion, lane_.failureWords());
  }
  judged_ = unfolded_;
}

}  // namespace weft::verbs
