// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/gpu_shares.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>

#include "src/base/log.h"

// The socket by which descriptors travel, the proof, and the tables of shares on both sides.
namespace weft::local {

namespace {

constexpr size_t kTrialBytes = size_t{2} << 20;  // the unit of CUDA's allocations
constexpr uint64_t kTrial = ~uint64_t{0};        // the share of the proof

constexpr const char* kSharing = "sharing GPU memory with a peer on this host";

struct Address {
  sockaddr_un socket{};
  socklen_t length = offsetof(sockaddr_un, sun_path);
};

}  // namespace

struct GpuShares::Datagram {
  Nonce from;  // the sender's inbox
  uint64_t share;
  uint64_t length;  // of the allocation
};

Result<std::shared_ptr<GpuShares>> GpuShares::open(std::shared_ptr<const mem::gpu::Driver> driver, int gpu) {
  if (!driver || gpu < 0) return Error(Code::unavailable, kSharing, "this process uses no GPU");
  if (const std::string why = driver->whyNotShared(gpu); !why.empty())
    return Error(Code::unavailable, kSharing, why);
  auto shares = std::make_shared<GpuShares>(std::move(driver), gpu);
  shares->socket_ = Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!shares->socket_) return Error(Code::resources, kSharing, "making a socket", errno);
  shares->socket_.closeInForkedChildren();
  // The kernel chooses a name that is in no folder (unix(7), "Autobind feature").
  Address name;
  name.socket.sun_family = AF_UNIX;
  auto* generic = reinterpret_cast<sockaddr*>(&name.socket);
  if (::bind(shares->socket_.get(), generic, sizeof name.socket.sun_family) != 0)
    return Error(Code::system, kSharing, "naming a socket", errno);
  name.length = sizeof name.socket;
  if (::getsockname(shares->socket_.get(), generic, &name.length) != 0)
    return Error(Code::system, kSharing, "asking for a socket's name", errno);
  const auto path = std::as_bytes(std::span(name.socket.sun_path));
  const auto end = path.begin() + static_cast<ptrdiff_t>(name.length - offsetof(sockaddr_un, sun_path));
  shares->name_.assign(path.begin(), end);
  return shares;
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
  Address peer;
  if (peerSocket.empty() || peerSocket.size() > sizeof peer.socket.sun_path)
    return Error(Code::unavailable, kSharing, "the peer shares none: WEFT_LOCAL_GPU or its GPU differ there");
  ours_ = ours;
  theirs_ = theirs;
  peer.socket.sun_family = AF_UNIX;
  std::memcpy(peer.socket.sun_path, peerSocket.data(), peerSocket.size());
  peer.length += static_cast<socklen_t>(peerSocket.size());
  if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&peer.socket), peer.length) != 0)
    return Error(Code::unavailable, kSharing, "its socket is not of this network namespace", errno);
  TRY(trial_, driver_->allocateShareable(gpu_, kTrialBytes));
  TRY(driver_->toGpu(gpu_, trial_->data(), ours_.data(), sizeof ours_));
  TRY(const bool told, announce(kTrial, trial_->data(), kTrialBytes));
  if (told) return {};
  return Error(Code::unavailable, kSharing, "its socket is full");
}

// Proves the way that data take: from the peer's memory to ours.
Status GpuShares::prove() {
  TRY(const std::byte* piece, find(kTrial, 0, sizeof(Nonce), gpu_));
  std::byte* ours = trial_->data() + kTrialBytes / 2;
  TRY(driver_->within(gpu_, ours, piece, sizeof(Nonce)));
  Nonce seen{};
  TRY(driver_->fromGpu(gpu_, seen.data(), ours, sizeof seen));
  drop(kTrial);
  if (equalSecret(seen, theirs_)) return {};
  return Error(Code::unavailable, kSharing,
               "what was copied from the peer's GPU memory is not what is there");
}

void GpuShares::proven(bool reached) {
  trial_.reset();
  drop(kTrial);
  reached_ = reached;
}

// False: the peer's socket is full. The peer empties it when it takes frames that name new shares.
Result<bool> GpuShares::announce(uint64_t share, const void* address, size_t length) const {
  TRY(const Fd descriptor, driver_->exportShared(address));
  Datagram datagram{ours_, share, length};
  iovec bytes{&datagram, sizeof datagram};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = descriptor.get();
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof datagram)) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS) return false;
  return Error(Code::system, kSharing, "sending a descriptor", errno);
}

// Any process of the network namespace may write to the socket. Only datagrams of the peer are kept; the
// descriptors of the others are closed.
void GpuShares::takeAnnounced() {
  for (;;) {
    Datagram datagram{};
    iovec bytes{&datagram, sizeof datagram};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    int fd = -1;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    Fd descriptor(fd);
    const bool whole = got == static_cast<ssize_t>(sizeof datagram) && descriptor;
    if (whole && equalSecret(datagram.from, theirs_))
      known_.push_back({datagram.share, datagram.length, std::move(descriptor), nullptr, {}});
  }
}

std::optional<GpuShares::Name> GpuShares::nameOf(const KeyedMemory& memory, const void* address) {
  if (!reached_) return Name{};
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto covers = [&](const Ours& one) {
    return one.key == memory.key() && at >= one.begin && at - one.begin < one.length;
  };
  auto found = std::find_if(named_.begin(), named_.end(), covers);
  if (found == named_.end()) {
    const mem::gpu::Pointer pointer = driver_->lookUp(address);
    Ours fresh{memory.key(), pointer.begin, pointer.length, lastShare_ + 1};
    if (pointer.kind != mem::gpu::Pointer::Kind::device) fresh = {memory.key(), at, 1, 0};
    const auto told = fresh.share != 0 ? announce(fresh.share, address, fresh.length) : Result<bool>(true);
    if (told && !*told) return std::nullopt;
    if (told)
      lastShare_ = std::max(lastShare_, fresh.share);
    else
      WEFT_LOG(info, "%zu bytes of GPU %d at %p go through host memory: %s", fresh.length, memory.gpu(),
               address, told.error().message().c_str());
    if (!told) fresh.share = 0;
    named_.push_back(fresh);
    found = named_.end() - 1;
  }
  return Name{found->share, at - found->begin, found->length - (at - found->begin)};
}

std::optional<uint64_t> GpuShares::gone(KeyTable& table) const {
  for (const Ours& one : named_)
    if (!table.use(one.key).valid()) return one.share;
  return std::nullopt;
}

void GpuShares::forgetOurs(uint64_t share) {
  const auto one =
      std::find_if(named_.begin(), named_.end(), [&](const Ours& it) { return it.share == share; });
  if (one != named_.end()) named_.erase(one);
}

Result<const std::byte*> GpuShares::find(uint64_t share, uint64_t offset, size_t length, int gpu) {
  TRY(const Theirs* theirs, mapped(share, gpu));
  if (offset > theirs->length || length > theirs->length - offset)
    return Error(Code::remote, kSharing, "the peer named bytes past the end of what it shares", ERANGE);
  return static_cast<const std::byte*>(theirs->mapped->data() + offset);
}

// Maps a share at its first use, and lets further GPUs reach it when they ask.
Result<const GpuShares::Theirs*> GpuShares::mapped(uint64_t share, int gpu) {
  const auto search = [&] {
    return std::find_if(known_.begin(), known_.end(), [&](const Theirs& it) { return it.share == share; });
  };
  auto one = search();
  if (one == known_.end()) {
    takeAnnounced();
    one = search();
  }
  if (one == known_.end())
    return Error(Code::remote, kSharing, "the peer named what it never shared", EPROTO);
  if (!one->mapped) {
    TRY(one->mapped, driver_->mapShared(gpu, one->descriptor, one->length));
    one->descriptor.reset();
    one->reachedBy.push_back(gpu);
  }
  if (std::find(one->reachedBy.begin(), one->reachedBy.end(), gpu) == one->reachedBy.end()) {
    TRY(driver_->letReach(gpu, *one->mapped));
    one->reachedBy.push_back(gpu);
  }
  return static_cast<const Theirs*>(&*one);
}

void GpuShares::drop(uint64_t share) {
  takeAnnounced();  // the announcement may be in the socket, unused
  std::erase_if(known_, [&](const Theirs& it) { return it.share == share; });
}

}  // namespace weft::local
