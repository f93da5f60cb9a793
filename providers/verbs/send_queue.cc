// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/send_queue.h"

#include <algorithm>
#include <arpa/inet.h>
#include <bit>
#include <cerrno>

#include "providers/verbs/endpoint.h"
#include "providers/verbs/memory.h"
#include "providers/verbs/words.h"

namespace weft::verbs {

namespace {

// Large works are told about one by one, that their sender may go on meanwhile.
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

SendQueue::~SendQueue() {
  queue_.forget(this);
  for (; unfolded_ != posted_; unfolded_++)
    if (slot(unfolded_).purpose != Purpose::marker) queue_.give(1);
}

size_t SendQueue::post(std::span<const Work> works, int* refusal) {
  std::array<ibv_send_wr, kBurst> requests;
  std::array<ibv_sge, kBurst> pieces;
  for (size_t i = 0; i < works.size(); i++) {
    const bool last = i + 1 == works.size();
    fill(works[i], &requests[i], &pieces[i]);
    requests[i].wr_id = number_ << 32 | (posted_ + static_cast<uint32_t>(i));
    requests[i].next = last ? nullptr : &requests[i + 1];
    if (wantsEntry(works[i], last)) requests[i].send_flags |= IBV_SEND_SIGNALED;
  }
  ibv_send_wr* refused = nullptr;
  const int code = ibv_post_send(pair_->get(), requests.data(), &refused);
  const size_t accepted =
      code == 0 || !refused ? works.size() : static_cast<size_t>(refused - requests.data());
  for (const Work& work : works.first(accepted))
    slot(posted_++) = {work.context, work.quiet ? Purpose::quiet : Purpose::work};
  queue_.take(accepted);
  // Perhaps it was the one to ask for an entry that was refused; then the next burst asks.
  loudUnsignalled_ |= accepted < works.size();
  *refusal = accepted == works.size() || code == ENOMEM || code == EAGAIN ? 0 : code;
  return accepted;
}

void SendQueue::fill(const Work& work, ibv_send_wr* request, ibv_sge* piece) const {
  const bool out = work.op != Opcode::read;
  piece->addr = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(work.local));
  piece->length = static_cast<uint32_t>(work.length);
  piece->lkey = work.memory ? static_cast<const VerbsMemory*>(work.memory)->localKey() : 0;
  request->sg_list = piece;
  request->num_sge = work.length > 0 ? 1 : 0;
  request->opcode = opcodeOf(work.op);
  request->send_flags = out && work.length > 0 && work.length <= pair_->inlineBytes() ? IBV_SEND_INLINE : 0;
  request->imm_data = htonl(work.imm);
  request->wr.rdma.remote_addr = work.remote.base + work.remoteOffset;
  request->wr.rdma.rkey = static_cast<uint32_t>(work.remote.key);
}

// A burst ends with an entry, unless all of it and of those before is quiet: then the card is asked only
// often enough that slots come back. While the Queue runs short of room every burst asks, or lanes that fell
// silent could keep what others wait for.
bool SendQueue::wantsEntry(const Work& work, bool last) {
  unsignalled_++;
  loudUnsignalled_ |= !work.quiet;
  bytesUnsignalled_ += work.length;
  const bool due = loudUnsignalled_ || unsignalled_ >= depth_ / 2 || !queue_.roomy();
  const bool large = loudUnsignalled_ && bytesUnsignalled_ >= kLargeBytes;
  if (!large && !(last && due)) return false;
  unsignalled_ = 0;
  loudUnsignalled_ = false;
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
    lane_.lost(statusWords(verdict_, entry.vendor_err));
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
    if (ok && work.purpose == Purpose::quiet) continue;
    *out = lane_.about(CompletionKind::sent, ok ? 0 : statusErrno(verdict_));
    out->context = work.context;
    if (!ok) queue_.explainNow(*out, lane_.failureWords());
    return true;
  }
  return false;
}

// Needs no memory at either end.
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
    Completion completion = lane_.about(CompletionKind::sent, ECANCELED);
    completion.context = work.context;
    queue_.report(completion, lane_.failureWords());
  }
  judged_ = unfolded_;
}

}  // namespace weft::verbs
