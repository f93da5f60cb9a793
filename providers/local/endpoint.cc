// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/endpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unistd.h>

#include "providers/common/keyed_memory.h"
#include "providers/local/wire.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/random.h"

namespace weft::local {

Result<std::unique_ptr<LocalEndpoint>> LocalEndpoint::open(LocalQueue& queue) {
  auto lane = std::make_unique<LocalEndpoint>(queue);
  fillRandom(lane->here_.nonce);
  TRY(lane->mine_, SharedInbox::create(lane->here_.nonce));
  lane->here_.pid = ::getpid();
  lane->here_.fd = lane->mine_.fd();
  lane->here_.process = processNonce();
  const LocalDevice& device = queue.device();
  if (device.info().cudaMemory) {
    TRY(lane->shares_, GpuShares::open(device.driver(), device.gpu()));
    lane->here_.gpuSocket = lane->shares_->socketName();
  }
  lane->address_ = encodeAddress(lane->here_);
  return lane;
}

// A forked child has none of the memory that is shared, and must not call CUDA.
LocalEndpoint::~LocalEndpoint() {
  queue_.forget(this);
  if (inForkedChild()) (void)shares_.release();
  if (!mine_ || inForkedChild()) return;
  if (theirs_) theirs_->peer.fence.store(1, std::memory_order_seq_cst);
  say(Word::left);
  while (const auto sent = outbox_.takeAny())
    if (sent->last) queue_.workGone();
  if (writing_.open) queue_.workGone();
  if (reading_.open) queue_.workGone();
}

Result<RemoteMemory> LocalEndpoint::import(std::span<const std::byte> blob) {
  return decodeKeyedMemory(blob, kMemoryMagic);
}

size_t LocalEndpoint::post(std::span<const Work> works) {
  size_t taken = 0;
  while (taken < works.size() && state_ == State::ready && queue_.hasRoom()) {
    const Work& work = works[taken];
    if (const int error = check(work); error != 0) [[unlikely]] {
      reject(work, error);
      return taken + 1;
    }
    if (!(work.op == Opcode::read ? startRead(work) : start(work))) break;
    taken++;
  }
  return taken;
}

int LocalEndpoint::check(const Work& work) const {
  if (work.length == 0 && work.op == Opcode::read) return EINVAL;
  return faultOf(work, kMaxWriteBytes);
}

// The Work counts as taken, and as failed; the lane ends with it, as a queue pair does.
void LocalEndpoint::reject(const Work& work, int error) {
  const char* why = faultWords(error);
  failWork(work.context, error, why);
  die(ECANCELED, why);
}

bool LocalEndpoint::start(const Work& work) {
  if (writing_.open) return false;
  writing_.work = work;
  writing_.done = 0;
  stagedFrom_ = nullptr;
  if (!pushPieces()) return false;
  queue_.workPosted();
  return true;
}

Piece LocalEndpoint::nextPiece() const {
  const Work& work = writing_.work;
  Piece piece;
  piece.length = static_cast<uint32_t>(std::min(work.length - writing_.done, kMostInFrame));
  piece.kind = work.op == Opcode::writeNotify ? FrameKind::notify : FrameKind::write;
  piece.imm = work.imm;
  piece.whole = static_cast<uint32_t>(work.length);
  piece.key = work.remote.key;
  piece.offset = work.remote.base + work.remoteOffset + writing_.done;
  piece.from = static_cast<const std::byte*>(work.local) + writing_.done;
  return piece;
}

// As far as there is room; false: not even one.
bool LocalEndpoint::pushPieces() {
  const Work& work = writing_.work;
  const auto* memory = static_cast<const KeyedMemory*>(work.memory);
  const bool ofGpu = memory && memory->gpu() >= 0 && work.length > 0;
  bool any = false;
  for (;;) {
    Piece piece = nextPiece();
    if (ofGpu && !pieceOfGpu(*memory, &piece)) [[unlikely]]
      break;
    const bool last = writing_.done + piece.length == work.length;
    piece.more = !last;
    // Who writes on waits for the ring.
    piece.tell = !last || !work.unsignaled;
    if (!outbox_.put(piece, {work.context, 0, last, work.unsignaled}, taken_)) break;
    untold_ = 0;
    stagedFrom_ = nullptr;
    any = true;
    writing_.done += piece.length;
    writing_.open = !last;
    if (last) break;
  }
  return any;
}

bool LocalEndpoint::startRead(const Work& work) {
  if (reading_.open) return false;
  reading_.work = work;
  reading_.done = 0;
  if (!askNext()) return false;
  reading_.open = true;
  queue_.workPosted();
  return true;
}

// Asks for the next piece: the answer has a place of its own, so only one is under way.
bool LocalEndpoint::askNext() {
  const Work& work = reading_.work;
  Piece piece;
  piece.kind = FrameKind::read;
  piece.length = static_cast<uint32_t>(std::min(work.length - reading_.done, kReplyBytes));
  piece.whole = piece.length;
  piece.key = work.remote.key;
  piece.offset = work.remote.base + work.remoteOffset + reading_.done;
  if (!outbox_.put(piece, {}, taken_)) return false;
  untold_ = 0;
  reading_.asked = true;
  return true;
}

void LocalEndpoint::advance() {
  if (writing_.open) (void)pushPieces();
  if (!reading_.open) return;
  if (reading_.asked)
    takeReply();
  else
    (void)askNext();
}

void LocalEndpoint::takeReply() {
  const size_t length = mine_->reply.length.load(std::memory_order_acquire);
  if (length == 0) return;
  const Work& work = reading_.work;
  const size_t wanted = std::min(work.length - reading_.done, kReplyBytes);
  if (length != wanted) return die(EPROTO, "the peer answered a read with another length");
  std::byte* to = static_cast<std::byte*>(work.local) + reading_.done;
  const int gpu = static_cast<const KeyedMemory*>(work.memory)->gpu();
  if (gpu < 0)
    std::memcpy(to, mine_->reply.bytes.data(), wanted);
  else if (const Status copied = shares_->driver().toGpu(gpu, to, mine_->reply.bytes.data(), wanted); !copied)
    return die(EIO, copied.error().message());
  mine_->reply.length.store(0, std::memory_order_relaxed);
  reading_.done += wanted;
  reading_.asked = false;
  if (reading_.done < work.length) return (void)askNext();
  reading_.open = false;
  queue_.workGone();
  Completion completion = about(CompletionKind::sent);
  completion.context = work.context;
  if (!work.unsignaled) queue_.report(completion);
}

size_t LocalEndpoint::completeConsumed(std::span<Completion> out) {
  const auto& peer = theirs_->owner;
  outbox_.look();
  size_t count = 0;
  while (count < out.size()) {
    const auto sent = outbox_.takeConsumed();
    if (!sent) break;
    if (!sent->last) continue;
    queue_.workGone();
    if (sent->silent) continue;
    Completion& told = out[count++];
    told = about(CompletionKind::sent);
    told.context = sent->context;
  }
  if (count < out.size() && peer.error.load(std::memory_order_relaxed) != 0) [[unlikely]]
    peerRefused();
  return count;
}

// The first frame that it has not taken is the one, and the lane is over.
void LocalEndpoint::peerRefused() {
  const int error = theirs_->owner.error.load(std::memory_order_acquire);
  outbox_.look();
  if (outbox_.hasConsumed()) return;  // those are reported first
  die(error,
      error == EACCES   ? "the peer refused a write or read: the memory is not registered there (any more)"
      : error == ERANGE ? "the peer refused a write or read: it leaves the memory that it names"
                        : "the peer refused what it received; both ends need the same version of weft");
}

std::string LocalEndpoint::named(const char* what, const std::string& why) const {
  return format("%s process %d of this host through shared memory: %s", what, there_.pid, why.c_str());
}

void LocalEndpoint::failWork(uint64_t context, int error, const std::string& why) {
  Completion completion = about(CompletionKind::sent, error);
  completion.context = context;
  queue_.report(completion, named("writing to or reading from", why));
}

// All that is not finished; how many there were.
size_t LocalEndpoint::failWorks(int error, const std::string& why) {
  size_t count = 0;
  const auto fail = [&](uint64_t context) {
    failWork(context, error, why);
    queue_.workGone();
    count++;
  };
  while (const auto sent = outbox_.takeAny())
    if (sent->last) fail(sent->context);
  if (writing_.open) fail(writing_.work.context);
  if (reading_.open) fail(reading_.work.context);
  writing_.open = reading_.open = false;
  return count;
}

}  // namespace weft::local
