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

// The writing half of a lane, and its connecting, fencing and closing. The receiving half: landing.cc. GPU
// memory: gpu_pieces.cc.
namespace weft::local {

namespace {

LaneLife::Terms termsOf(const Config& config) {
  return {.connect = config.connectTimeout,
          .close = config.closeTimeout,
          .notFenced = "the peer stopped while it landed a write, which it may go on with"};
}

}  // namespace

LocalEndpoint::LocalEndpoint(LocalQueue& queue)
    : queue_(queue), life_(*this, queue.device().clock(), termsOf(queue.device().config())) {}

Result<std::unique_ptr<LocalEndpoint>> LocalEndpoint::open(LocalQueue& queue) {
  auto lane = std::make_unique<LocalEndpoint>(queue);
  fillRandom(lane->here_.nonce);
  TRY(lane->mine_, SharedInbox::create(lane->here_.nonce));
  lane->here_.pid = ::getpid();
  lane->here_.fd = lane->mine_.fd();
  lane->here_.process = processNonce();
  const LocalDevice& device = queue.device();
  if (device.info().cudaMemory) {
    TRY(lane->shares_, GpuShares::open(device.driver(), device.gpu(), device.errands()));
    lane->here_.gpuSocket = lane->shares_->socketName();
  }
  lane->address_ = encodeAddress(lane->here_);
  return lane;
}

// A forked child has no copy of the shared memory and must not call CUDA, so it leaks what holds either.
LocalEndpoint::~LocalEndpoint() {
  queue_.forget(this);
  if (inForkedChild()) {
    (void)std::make_unique<std::shared_ptr<GpuShares>>(std::move(shares_)).release();
    (void)staging_.release();
    (void)std::make_unique<std::deque<Landing>>(std::move(landings_)).release();
  }
  if (!mine_ || inForkedChild()) return;
  if (theirs_) theirs_->peer.fence.store(1, std::memory_order_seq_cst);
  sayOver();
  while (const auto sent = outbox_.takeAny())
    if (sent->last) queue_.workGone();
  if (writing_.open) queue_.workGone();
  if (reading_.open) queue_.workGone();
}

// The blob comes from the peer and is checked.
Result<RemoteMemory> LocalEndpoint::import(std::span<const std::byte> blob) {
  return decodeKeyedMemory(blob, kMemoryMagic);
}

size_t LocalEndpoint::post(std::span<const Work> works) {
  size_t taken = 0;
  while (taken < works.size() && life_.ready() && queue_.hasRoom()) {
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

// 0, or the errno of a work that the lane cannot take.
int LocalEndpoint::check(const Work& work) const {
  if (work.length == 0 && work.op == Opcode::read) return EINVAL;
  return faultOf(work, kMaxWriteBytes);
}

// The Work counts as taken and as failed. The lane ends with it, as an InfiniBand queue pair would.
void LocalEndpoint::reject(const Work& work, int error) {
  const char* why = faultWords(error);
  failWork(work.context, error, why);
  life_.apply(LaneEvent::workFailed, ECANCELED, why);
}

bool LocalEndpoint::start(const Work& work) {
  if (writing_.open) return false;
  writing_.work = work;
  writing_.done = 0;
  if (staging_) [[unlikely]]
    staging_->reset();
  const bool any = pushPieces();
  // A copy that the GPU was asked for goes on by itself, so the work counts as taken.
  const bool asked = !any && life_.ready() && staging_ && staging_->has(work.local);
  if (!any && !asked) return false;
  if (asked) writing_.open = true;
  queue_.workPosted();
  return true;
}

// The next frame's worth of the write that is under way.
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

// Puts as many pieces as there is room for. False: not one.
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
    // A writer that has more to put waits for room in the ring, so it asks to be told.
    piece.tell = !last || !work.unsignaled;
    if (!outbox_.put(piece, {work.context, 0, last, work.unsignaled}, consumed())) break;
    untold_ = 0;
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

// Asks for the next piece. The answer has a single place, so only one piece is under way.
bool LocalEndpoint::askNext() {
  const Work& work = reading_.work;
  Piece piece;
  piece.kind = FrameKind::read;
  piece.length = static_cast<uint32_t>(std::min(work.length - reading_.done, kReplyBytes));
  piece.whole = piece.length;
  piece.key = work.remote.key;
  piece.offset = work.remote.base + work.remoteOffset + reading_.done;
  if (!outbox_.put(piece, {}, consumed())) return false;
  untold_ = 0;
  reading_.asked = true;
  return true;
}

// Goes on with works that are only partly with the peer.
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
  if (length != wanted) return broke(EPROTO, "the peer answered a read with another length");
  std::byte* to = static_cast<std::byte*>(work.local) + reading_.done;
  const int gpu = static_cast<const KeyedMemory*>(work.memory)->gpu();
  if (gpu < 0)
    std::memcpy(to, mine_->reply.bytes.data(), wanted);
  else if (const Status copied = shares_->driver().toGpu(gpu, to, mine_->reply.bytes.data(), wanted); !copied)
    return broke(EIO, copied.error().message());
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

// Hands out the completions of frames that the peer has taken. The peer's error comes last.
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

// The peer refused the first frame that it has not taken, and the lane is over.
void LocalEndpoint::peerRefused() {
  const int error = theirs_->owner.error.load(std::memory_order_acquire);
  outbox_.look();
  if (outbox_.hasConsumed()) return;  // those are reported first
  broke(error, error == EACCES
                   ? "the peer refused a write or read: the memory is not registered there (any more)"
               : error == ERANGE ? "the peer refused a write or read: it leaves the memory that it names"
               : error == EIO    ? "the peer could not copy GPU memory; its own log says why"
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

// Reports all works that are not finished as failed; returns their number.
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

// The slow half: connecting, fencing and closing. Nothing below runs while a lane carries data.

// Both ends look for each other's inbox, and each says the outcome in its own inbox. Where an end cannot use
// the other's inbox, the other end reads that word, or finds nothing itself: there is no lane, and both ends
// know it. With GPU memory, the end that connects second has everything that its proof needs, and goes on at
// once. What may run out of memory comes before the lane connects, as a lane that does has the peer's inbox.
Status LocalEndpoint::connect(std::span<const std::byte> peerAddress) {
  TRY(life_.mayConnect());
  TRY(there_, decodeAddress(peerAddress));
  queue_.attend(this);
  const Status found = findPeer();
  life_.apply(LaneEvent::connect);
  if (!found)
    life_.apply(LaneEvent::refused, found.error().errnum() ? found.error().errnum() : ENOENT,
                found.error().message());
  else if (shares_)
    hearPeer(queue_.device().clock().now());
  return {};
}

Status LocalEndpoint::findPeer() {
  TRY(theirs_, SharedInbox::find(there_));
  if (!shares_ && !there_.gpuSocket.empty())
    return Error(Code::unavailable, "looking for a peer on this host",
                 "it shares GPU memory and we do not: WEFT_LOCAL_GPU or the GPUs differ");
  if (shares_) {
    TRY(shares_->meet(there_.gpuSocket, here_.nonce, there_.nonce));
    TRY(staging_, GpuStaging::create(queue_.device(), shares_->gpu()));
  }
  mine_->owner.peer = there_.nonce;
  say(Word::willing);
  return {};
}

bool LocalEndpoint::progress(TimePoint now) {
  if (life_.state() == LaneState::connecting) hearPeer(now);
  const bool mapping = life_.ready() && shares_ && shares_->settle();
  if (life_.ready() && shares_) (void)talkOfShares();
  const bool more = life_.progress(now) || mapping;
  const bool over = life_.state() == LaneState::dead || life_.state() == LaneState::retired;
  return more || (over && !allLanded());
}

// The word in the peer's inbox decides, until the deadline does.
void LocalEndpoint::hearPeer(TimePoint now) {
  const auto refused = [&](int error, const char* why) { life_.apply(LaneEvent::refused, error, why); };
  switch (theirs_->owner.word.load(std::memory_order_acquire)) {
    case Word::willing:
    case Word::tried:
    case Word::ended:
      if (!equalSecret(theirs_->owner.peer, here_.nonce))
        return refused(ECONNREFUSED, "the peer connected to another lane");
      return heardWilling(now);
    case Word::silent:
      if (!theirs_.ownerLives()) refused(ECONNRESET, "the peer's process is gone");
      return;
    case Word::left:
      return refused(ECONNREFUSED, "the peer closed its end");
    default:
      return refused(ECONNREFUSED, "the peer cannot see our memory");
  }
}

// Where GPU memory is shared, a lane stands when both ends have tried to copy out of the other's memory.
void LocalEndpoint::heardWilling(TimePoint now) {
  if (!shares_ || proveGpu()) {
    outbox_.attach(&*theirs_);
    life_.apply(LaneEvent::stands);
  } else if (now >= life_.deadline() || !theirs_.ownerLives()) {
    life_.apply(LaneEvent::refused, ETIMEDOUT, "the peer does not prove that it reaches our GPU memory");
  }
}

// True: both ends have tried. Where the GPUs do not reach each other, the lane declines if there is a card
// that takes GPU memory; without a card, the memory goes through the ring. A peer at its deadline may give up
// while we prove, so its word is read after ours was said.
bool LocalEndpoint::proveGpu() {
  if (!proven_) {
    const GpuShares::Proof proof = shares_->prove();
    const bool descriptors = (proof.ways & kByDescriptor) != 0;
    if (!descriptors && !queue_.device().info().sharedGpu) {
      life_.apply(LaneEvent::refused, EIO, proof.noDescriptors);
      return false;
    }
    if (!descriptors || (proof.ways & kByHandle) == 0)
      WEFT_LOG(info, "%s of process %d of this host goes through pinned host memory: %s",
               descriptors       ? "memory of cudaMalloc"
               : proof.ways == 0 ? "GPU memory"
                                 : "GPU memory that was made for sharing",
               there_.pid, (descriptors ? proof.noHandles : proof.noDescriptors).c_str());
    proven_ = true;
    mine_->owner.reached.store(proof.ways, std::memory_order_relaxed);
    say(Word::tried);
  }
  const Word word = theirs_->owner.word.load(std::memory_order_seq_cst);
  const bool both = word == Word::tried || word == Word::ended;
  if (both) shares_->proven(theirs_->owner.reached.load(std::memory_order_relaxed));
  return both;
}

// A lane that stands here has read that its peer is willing. The peer's deadline may have passed at that very
// moment: then the peer declined, and the lane breaks here.
void LocalEndpoint::checkPeer() {
  if (!life_.ready()) return;
  const Word word = theirs_->owner.word.load(std::memory_order_acquire);
  if (word == Word::ended && theirs_->owner.error.load(std::memory_order_relaxed) != 0)
    peerRefused();
  else if (word == Word::ended || word == Word::left)
    broke(ECONNRESET, "the peer closed its end");
  else if (word == Word::declined)
    broke(ECONNRESET, "the peer gave up connecting as this end was ready");
  else if (!theirs_.ownerLives())
    broke(ECONNRESET, "the peer's process is gone");
}

size_t LocalEndpoint::dropOutstanding(LaneState from, int error, const std::string& why) {
  say(from == LaneState::ready ? Word::ended : Word::declined);
  if (flying_ > 0) queue_.attend(this);
  return failWorks(error, why);
}

void LocalEndpoint::retire() {
  life_.apply(LaneEvent::retire);
}

// From now on nothing lands in memory here, and nothing of ours that is in the peer's inbox may land there.
void LocalEndpoint::startFence(LaneState from) {
  if (theirs_) theirs_->peer.fence.store(1, std::memory_order_seq_cst);
  if (from == LaneState::ready) tell();
  sayOver();
  queue_.attend(this);
}

// Waits for a write that the peer lands just now, and for copies of the GPU here. A copy that nobody can take
// back is waited for however late it is: it would move whatever the two buffers hold by then. The protocol
// gives such a lane up in its own time (LaneSet::watchFencing).
std::optional<int> LocalEndpoint::fenced(TimePoint, bool late) {
  if (!allLanded()) return std::nullopt;
  const bool landing =
      theirs_ && theirs_->turn.landing.load(std::memory_order_seq_cst) != 0 && theirs_.ownerLives();
  if (!landing) return 0;
  return late ? std::optional<int>(ETIMEDOUT) : std::nullopt;
}

// Frames that the peer took before the fence succeeded; all other works fail.
void LocalEndpoint::endFence(bool) {
  if (!outbox_.empty()) outbox_.look();
  while (const auto sent = outbox_.takeConsumed()) {
    if (!sent->last) continue;
    queue_.workGone();
    Completion completion = about(CompletionKind::sent);
    completion.context = sent->context;
    if (!sent->silent) queue_.report(completion);
  }
  failWorks(ECANCELED, "the lane was retired");
}

}  // namespace weft::local
