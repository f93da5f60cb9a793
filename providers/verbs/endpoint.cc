// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/endpoint.h"

#include <algorithm>
#include <arpa/inet.h>
#include <bit>
#include <cerrno>

#include "providers/verbs/memory.h"
#include "providers/verbs/words.h"
#include "src/base/log.h"
#include "src/base/reserve.h"

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

VerbsEndpoint::VerbsEndpoint(VerbsQueue& queue) : queue_(queue), number_(queue.newLaneNumber()) {}

Result<std::unique_ptr<Endpoint>> VerbsEndpoint::create(VerbsQueue& queue) {
  auto endpoint = std::make_unique<VerbsEndpoint>(queue);
  TRY(endpoint->start());
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

Status VerbsEndpoint::start() {
  depth_ = queue_.laneDepth();
  ring_.resize(std::bit_ceil(size_t{depth_} + 1));
  TRY(pair_, QueuePair::create(queue_.objects(), depth_ + 1));  // and the marker
  address_ = encode(pair_->address());
  queue_.add(queuePair(), this);
  return {};
}

VerbsEndpoint::~VerbsEndpoint() {
  const MustNotFail closing;
  queue_.forget(this);
  for (; unfolded_ != posted_; unfolded_++)
    if (slot(unfolded_).purpose != Purpose::marker) queue_.give(1);
}

Result<RemoteMemory> VerbsEndpoint::import(std::span<const std::byte> blob) {
  return decodeMemory(blob);
}

size_t VerbsEndpoint::post(std::span<const Work> works) {
  size_t taken = 0;
  while (taken < works.size() && state_ == State::ready) {
    const size_t room = std::min({works.size() - taken, slots(), queue_.room(), kBurst});
    if (room == 0) break;
    const size_t accepted = postBurst(works.subspan(taken, room));
    taken += accepted;
    if (accepted < room) break;
  }
  return taken;
}

size_t VerbsEndpoint::postBurst(std::span<const Work> works) {
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
  if (code == 0 || code == ENOMEM || code == EAGAIN) [[likely]]
    return accepted;
  if (accepted == works.size()) return accepted;
  rejected(works[accepted], code);
  return accepted + 1;
}

void VerbsEndpoint::fill(const Work& work, ibv_send_wr* request, ibv_sge* piece) const {
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
bool VerbsEndpoint::wantsEntry(const Work& work, bool last) {
  unsignalled_++;
  loudUnsignalled_ |= !work.quiet;
  bytesUnsignalled_ += work.length;
  const bool due = loudUnsignalled_ || unsignalled_ >= depth_ / 4 || !queue_.roomy();
  const bool large = loudUnsignalled_ && bytesUnsignalled_ >= kLargeBytes;
  if (!large && !(last && due)) return false;
  unsignalled_ = 0;
  loudUnsignalled_ = false;
  bytesUnsignalled_ = 0;
  return true;
}

// The driver would not even take it: the Work counts as taken, and as failed.
void VerbsEndpoint::rejected(const Work& work, int code) {
  Completion completion = about(CompletionKind::sent, code);
  completion.context = work.context;
  state_ = State::dead;
  firstFailure_ = verbsError("posting", queue_.device().info().name, code).message();
  queue_.report(completion, named("posting to", firstFailure_));
}

bool VerbsEndpoint::finished(const ibv_wc& entry) {
  if (entry.wr_id >> 32 != (number_ & UINT32_MAX)) return false;
  const uint32_t upTo = static_cast<uint32_t>(entry.wr_id) + 1;
  if (static_cast<int32_t>(upTo - unfolded_) <= 0) return false;  // condemned meanwhile
  judged_ = upTo;
  verdict_ = entry.status;
  if (verdict_ == IBV_WC_SUCCESS) [[likely]]
    return true;
  vendorCode_ = entry.vendor_err;
  if (firstFailure_.empty()) firstFailure_ = statusWords(verdict_, vendorCode_);
  if (state_ == State::ready) state_ = State::dead;
  return true;
}

bool VerbsEndpoint::unfold(Completion* out) {
  while (unfolded_ != judged_) {
    const Posted work = slot(unfolded_++);
    const bool ok = verdict_ == IBV_WC_SUCCESS;
    if (work.purpose == Purpose::marker) [[unlikely]] {
      markerBack(ok);
      continue;
    }
    queue_.give(1);
    if (ok && work.purpose == Purpose::quiet) continue;
    *out = about(CompletionKind::sent, ok ? 0 : statusErrno(verdict_));
    out->context = work.context;
    if (!ok) queue_.explainNow(*out, named("writing to or reading from", firstFailure_));
    return true;
  }
  return false;
}

Completion VerbsEndpoint::about(CompletionKind kind, int error) {
  Completion completion;
  completion.kind = kind;
  completion.ok = error == 0;
  completion.error = error;
  completion.source = this;
  return completion;
}

std::string VerbsEndpoint::named(const char* what, const std::string& why) const {
  return format("%s %s over verbs %s (%s): %s", what, peerText_.empty() ? "the peer" : peerText_.c_str(),
                queue_.device().info().name.c_str(), addressText(pair_->address()).c_str(), why.c_str());
}

}  // namespace weft::verbs
