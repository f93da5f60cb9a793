// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/gpu_shares.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "src/base/log.h"

// The proof, and the tables of shares on both sides.
namespace weft::local {

namespace {

constexpr size_t kTrialBytes = size_t{2} << 20;  // the unit of CUDA's allocations
// Shares that a peer told of and has not offered yet, and answers to be put. A peer that keeps the rules has
// a few.
constexpr size_t kMostWaiting = 1024;

constexpr const char* kSharing = "sharing GPU memory with a peer on this host";

}  // namespace

Result<std::shared_ptr<GpuShares>> GpuShares::open(std::shared_ptr<const mem::gpu::Driver> driver, int gpu,
                                                   std::shared_ptr<mem::gpu::Errands> errands) {
  if (!driver || gpu < 0) return Error(Code::unavailable, kSharing, "this process uses no GPU");
  if (const std::string why = driver->whyNotShared(gpu); !why.empty())
    return Error(Code::unavailable, kSharing, why);
  auto shares = std::make_shared<GpuShares>(std::move(driver), gpu, std::move(errands));
  TRY(shares->socket_, ShareSocket::open());
  TRY(shares->copiesOf(gpu));  // a stream, before there are kernels
  return shares;
}

// The lane is gone, or the last copy that used it is over; either is told to the thread that polls.
GpuShares::~GpuShares() {
  errands_->destroy(std::move(known_));
  errands_->destroy(std::move(copies_));
  errands_->destroy(std::move(trial_));
  errands_->destroy(std::move(trialPiece_));
}

Result<mem::gpu::Driver::Copies*> GpuShares::copiesOf(int gpu) {
  const auto found =
      std::find_if(copies_.begin(), copies_.end(), [gpu](const auto& one) { return one->gpu() == gpu; });
  if (found != copies_.end()) return found->get();
  TRY(auto fresh, mem::gpu::Driver::Copies::open(driver_, gpu));
  copies_.push_back(std::move(fresh));
  return copies_.back().get();
}

Status GpuShares::meet(const Bytes& peerSocket, const Nonce& ours, const Nonce& theirs) {
  ours_ = ours;
  theirs_ = theirs;
  TRY(socket_.connect(peerSocket));
  TRY(trial_, driver_->allocateShareable(gpu_, kTrialBytes));
  TRY(driver_->toGpu(gpu_, trial_->data(), ours_.data(), sizeof ours_));
  TRY(const bool told, announceDescriptor(kTrialByDescriptor, trial_->data(), kTrialBytes));
  if (!told) return Error(Code::unavailable, kSharing, "its socket is full");
  offerPiece();
  return {};
}

// Memory as cudaMalloc makes it. Where something fails the peer is not told of it, and finds no way.
void GpuShares::offerPiece() {
  if (!driver_->whyNoHandles().empty()) return;
  auto piece = driver_->allocate(gpu_, kTrialBytes);
  if (!piece || !driver_->toGpu(gpu_, (*piece)->data(), ours_.data(), sizeof ours_)) return;
  if (announceHandle(kTrialByHandle, gpu_, (*piece)->data(), kTrialBytes)) trialPiece_ = piece.take();
}

GpuShares::Proof GpuShares::prove() {
  Proof proof;
  const auto attempt = [&](uint64_t share, uint32_t way, std::string* why) {
    const Status copied = copyOut(share);
    drop(share);
    if (copied)
      proof.ways |= way;
    else
      *why = copied.error().message();
  };
  attempt(kTrialByDescriptor, kByDescriptor, &proof.noDescriptors);
  attempt(kTrialByHandle, kByHandle, &proof.noHandles);
  return proof;
}

// Proves the way that data take: from the peer's memory to ours.
Status GpuShares::copyOut(uint64_t share) {
  TRY(const std::byte* piece, open(share, gpu_));
  std::byte* ours = trial_->data() + kTrialBytes / 2;
  const Nonce blank{};
  TRY(driver_->toGpu(gpu_, ours, blank.data(), sizeof blank));
  TRY(driver_->within(gpu_, ours, piece, sizeof(Nonce)));
  Nonce seen{};
  TRY(driver_->fromGpu(gpu_, seen.data(), ours, sizeof seen));
  if (equalSecret(seen, theirs_)) return {};
  return Error(Code::unavailable, kSharing,
               "what was copied from the peer's GPU memory is not what is there");
}

void GpuShares::proven(uint32_t reached) {
  errands_->destroy(std::exchange(trial_, nullptr));
  errands_->destroy(std::exchange(trialPiece_, nullptr));
  drop(kTrialByDescriptor);
  drop(kTrialByHandle);
  reached_ = reached;
}

Result<bool> GpuShares::announceDescriptor(uint64_t share, const void* address, size_t length) const {
  TRY(const Fd descriptor, driver_->exportShared(address));
  return socket_.send({ours_, share, length, kByDescriptor, {}}, descriptor);
}

Result<bool> GpuShares::announceHandle(uint64_t share, int gpu, const void* address, size_t length) const {
  TRY(const mem::gpu::IpcHandle handle, driver_->handleOf(gpu, address));
  return socket_.send({ours_, share, length, kByHandle, handle}, Fd());
}

// By the first way that the peer reaches and the memory has. The allocation decides that, so each is tried.
Result<bool> GpuShares::announceAny(const Ours& fresh, int gpu) const {
  const auto* address = reinterpret_cast<const void*>(fresh.begin);
  Result<bool> told =
      Error(Code::unavailable, kSharing, "memory that was not made for sharing, and handles do not work");
  if ((reached_ & kByDescriptor) != 0) told = announceDescriptor(fresh.share, address, fresh.length);
  if (!told && (reached_ & kByHandle) != 0) told = announceHandle(fresh.share, gpu, address, fresh.length);
  return told;
}

void GpuShares::takeAnnounced() {
  while (auto taken = socket_.take(theirs_)) keep(taken->first, std::move(taken->second));
}

// A share that is told of twice, in no known way, or beyond the bound is none.
void GpuShares::keep(const Announcement& announcement, Fd descriptor) {
  const bool byDescriptor = announcement.way == kByDescriptor && descriptor;
  if (!byDescriptor && announcement.way != kByHandle) return;
  const auto waiting = static_cast<size_t>(
      std::count_if(known_.begin(), known_.end(), [](const Theirs& it) { return it.views.empty(); }));
  if (waiting >= kMostWaiting || known(announcement.share)) return;
  known_.push_back({announcement.share,
                    {announcement.length, static_cast<uint32_t>(announcement.way), std::move(descriptor),
                     announcement.handle},
                    nullptr,
                    {}});
}

const GpuShares::Ours* GpuShares::findNamed(const KeyedMemory& memory, const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto found = std::find_if(named_.begin(), named_.end(), [&](const Ours& one) {
    return one.key == memory.key() && at >= one.begin && at - one.begin < one.length;
  });
  return found == named_.end() ? nullptr : &*found;
}

bool GpuShares::name(const KeyedMemory& memory, const void* address) {
  const mem::gpu::Pointer pointer = driver_->lookUp(address);
  Ours fresh{memory.key(), pointer.begin, pointer.length, lastShare_ + 1};
  if (pointer.kind != mem::gpu::Pointer::Kind::device)
    fresh = {memory.key(), reinterpret_cast<uintptr_t>(address), 1, 0};
  const auto told = fresh.share != 0 ? announceAny(fresh, memory.gpu()) : Result<bool>(true);
  if (told && !*told) return false;
  if (!told) {
    WEFT_LOG(info, "%zu bytes of GPU %d at %p go through host memory: %s", fresh.length, memory.gpu(),
             address, told.error().message().c_str());
    fresh.share = 0;
  } else if (fresh.share != 0) {
    lastShare_ = fresh.share;
    notes_.push_back({FrameKind::offer, fresh.share});
  }
  named_.push_back(fresh);
  return true;
}

GpuShares::Name GpuShares::nameOf(const KeyedMemory& memory, const void* address) const {
  const Ours* found = findNamed(memory, address);
  if (!found || !found->mapped) return {};
  const size_t offset = reinterpret_cast<uintptr_t>(address) - found->begin;
  return {found->share, offset, found->length - offset};
}

// What was never offered by a frame needs no word to the peer.
std::optional<GpuShares::Note> GpuShares::nextNote(KeyTable& table) {
  std::erase_if(named_, [&](const Ours& one) { return one.share == 0 && !table.use(one.key).valid(); });
  for (const Ours& one : named_)
    if (!table.use(one.key).valid()) return Note{FrameKind::forget, one.share};
  if (notes_.empty()) return std::nullopt;
  return notes_.front();
}

void GpuShares::noted(const Note& note) {
  if (note.kind != FrameKind::forget) return notes_.pop_front();
  std::erase_if(named_, [&](const Ours& one) { return one.share == note.share; });
  std::erase_if(notes_,
                [&](const Note& one) { return one.kind == FrameKind::offer && one.share == note.share; });
}

// A share that the peer cannot map goes another way as long as its memory is registered.
void GpuShares::answered(uint64_t share, bool mapped) {
  const auto one =
      std::find_if(named_.begin(), named_.end(), [&](const Ours& it) { return it.share == share; });
  if (share == 0 || one == named_.end()) return;
  one->mapped = mapped;
  if (mapped) return;
  WEFT_LOG(info, "%zu bytes at %p go through host memory: the peer cannot map them", one->length,
           reinterpret_cast<void*>(one->begin));
  one->share = 0;
}

// An answer that cannot be put soon is forgotten, beyond the bound: the peer does not take its answers.
void GpuShares::answer(uint64_t share, bool mapped) {
  if (notes_.size() < kMostWaiting) notes_.push_back({FrameKind::answer, share, mapped});
}

// A share that is offered once more is answered once more.
void GpuShares::offered(uint64_t share) {
  takeAnnounced();
  Theirs* theirs = known(share);
  if (!theirs || !theirs->views.empty()) {
    if (!theirs) WEFT_LOG(info, "a peer on this host offers GPU memory that it told nothing of");
    return answer(share, theirs != nullptr);
  }
  if (theirs->opening) return;
  auto opening = std::make_shared<Opening>();
  opening->named = std::move(theirs->named);
  theirs->named = {opening->named.length, opening->named.way, Fd(), opening->named.handle};
  theirs->opening = opening;
  errands_->ask([opening = std::move(opening), driver = driver_, gpu = gpu_] {
    opening->mapped.emplace(map(*driver, opening->named, gpu));
    opening->over.store(true, std::memory_order_release);
  });
}

// The errand is over. False: the share could not be mapped.
bool GpuShares::finish(Theirs& theirs) {
  Result<MappedPtr> mapped = std::move(*std::exchange(theirs.opening, nullptr)->mapped);
  if (!mapped) {
    WEFT_LOG(info, "%s", mapped.error().message().c_str());
    return false;
  }
  const std::byte* data = (*mapped)->data();
  theirs.views.push_back({gpu_, data, mapped.take()});
  return true;
}

bool GpuShares::settle() {
  bool more = false;
  std::vector<uint64_t> refused;
  for (Theirs& theirs : known_) {
    if (!theirs.opening) continue;
    const bool over = theirs.opening->over.load(std::memory_order_acquire);
    more = more || !over;
    if (!over) continue;
    const bool mapped = finish(theirs);
    answer(theirs.share, mapped);
    if (!mapped) refused.push_back(theirs.share);
  }
  for (const uint64_t share : refused) drop(share);
  return more;
}

Result<const std::byte*> GpuShares::find(uint64_t share, uint64_t offset, size_t length, int gpu) {
  Theirs* theirs = known(share);
  if (!theirs || theirs->views.empty())
    return Error(Code::remote, kSharing, "the peer named what it never shared", EPROTO);
  if (offset > theirs->named.length || length > theirs->named.length - offset)
    return Error(Code::remote, kSharing, "the peer named bytes past the end of what it shares", ERANGE);
  TRY(const Theirs::View* view, viewOf(*theirs, gpu));
  return static_cast<const std::byte*>(view->data + offset);
}

// Maps a share that the peer has told of.
Result<const std::byte*> GpuShares::open(uint64_t share, int gpu) {
  takeAnnounced();
  Theirs* theirs = known(share);
  if (!theirs) return Error(Code::remote, kSharing, "the peer offers what it told nothing of", EPROTO);
  TRY(const Theirs::View* view, viewOf(*theirs, gpu));
  return static_cast<const std::byte*>(view->data);
}

GpuShares::Theirs* GpuShares::known(uint64_t share) {
  const auto one =
      std::find_if(known_.begin(), known_.end(), [&](const Theirs& it) { return it.share == share; });
  return one == known_.end() ? nullptr : &*one;
}

Result<GpuShares::MappedPtr> GpuShares::map(const mem::gpu::Driver& driver, Named& named, int gpu) {
  if (named.way == kByHandle) return driver.openHandle(gpu, named.handle, named.length);
  auto mapped = driver.mapShared(gpu, named.descriptor, named.length);
  named.descriptor.reset();
  return mapped;
}

// Maps a share of the trial at its first use. For a further GPU of this process a handle is opened once more,
// and a mapping of a descriptor is made to reach it.
Result<const GpuShares::Theirs::View*> GpuShares::viewOf(Theirs& theirs, int gpu) const {
  const auto view = std::find_if(theirs.views.begin(), theirs.views.end(),
                                 [gpu](const Theirs::View& it) { return it.gpu == gpu; });
  if (view != theirs.views.end()) return static_cast<const Theirs::View*>(&*view);
  MappedPtr mapped;
  if (theirs.named.way == kByHandle || theirs.views.empty()) {
    TRY(mapped, map(*driver_, theirs.named, gpu));
  } else {
    TRY(driver_->letReach(gpu, *theirs.views.front().mapped));
  }
  const std::byte* data = mapped ? mapped->data() : theirs.views.front().data;
  theirs.views.push_back({gpu, data, std::move(mapped)});
  return static_cast<const Theirs::View*>(&theirs.views.back());
}

// An errand that maps it comes before the one that destroys it.
void GpuShares::drop(uint64_t share) {
  takeAnnounced();  // the announcement may be in the socket, unused
  const auto gone =
      std::find_if(known_.begin(), known_.end(), [&](const Theirs& it) { return it.share == share; });
  if (gone == known_.end()) return;
  errands_->destroy(std::move(*gone));
  known_.erase(gone);
}

}  // namespace weft::local
