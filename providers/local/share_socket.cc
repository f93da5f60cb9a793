// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/share_socket.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <sys/socket.h>
#include <sys/un.h>
#include <vector>

// Datagrams of unix(7), with a descriptor beside their bytes.
namespace weft::local {

namespace {

constexpr const char* kTalking = "telling a peer on this host of GPU memory";

struct Address {
  sockaddr_un socket{};
  socklen_t length = offsetof(sockaddr_un, sun_path);
};

// The bytes of one datagram and the room for one descriptor, as the kernel wants them.
struct Envelope {
  explicit Envelope(Announcement* content) : bytes{content, sizeof *content} {
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;
  iovec bytes;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

// All that came along. Alignment leaves room for a second descriptor behind the one that is due, and the
// kernel opens it for whoever sends two.
std::vector<Fd> descriptorsOf(msghdr& message) {
  std::vector<Fd> found;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      found.emplace_back(fd);
    }
  }
  return found;
}

}  // namespace

Result<ShareSocket> ShareSocket::open() {
  ShareSocket made;
  made.socket_ = Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.socket_) return Error(Code::resources, kTalking, "making a socket", errno);
  made.socket_.closeInForkedChildren();
  // The kernel chooses a name that is in no folder (unix(7), "Autobind feature").
  Address name;
  name.socket.sun_family = AF_UNIX;
  auto* generic = reinterpret_cast<sockaddr*>(&name.socket);
  if (::bind(made.socket_.get(), generic, sizeof name.socket.sun_family) != 0)
    return Error(Code::system, kTalking, "naming a socket", errno);
  name.length = sizeof name.socket;
  if (::getsockname(made.socket_.get(), generic, &name.length) != 0)
    return Error(Code::system, kTalking, "asking for a socket's name", errno);
  const auto path = std::as_bytes(std::span(name.socket.sun_path));
  const auto end = path.begin() + static_cast<ptrdiff_t>(name.length - offsetof(sockaddr_un, sun_path));
  made.name_.assign(path.begin(), end);
  return made;
}

Status ShareSocket::connect(const Bytes& peer) {
  Address address;
  if (peer.empty() || peer.size() > sizeof address.socket.sun_path)
    return Error(Code::unavailable, kTalking, "the peer shares none: WEFT_LOCAL_GPU or its GPU differ there");
  address.socket.sun_family = AF_UNIX;
  std::memcpy(address.socket.sun_path, peer.data(), peer.size());
  address.length += static_cast<socklen_t>(peer.size());
  if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.length) == 0)
    return {};
  return Error(Code::unavailable, kTalking, "its socket is not of this network namespace", errno);
}

Result<bool> ShareSocket::send(const Announcement& announcement, const Fd& descriptor) const {
  Announcement out = announcement;
  Envelope envelope(&out);
  if (descriptor) {
    cmsghdr* header = CMSG_FIRSTHDR(&envelope.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = descriptor.get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  } else {
    envelope.message.msg_control = nullptr;
    envelope.message.msg_controllen = 0;
  }
  if (::sendmsg(socket_.get(), &envelope.message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof out))
    return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS) return false;
  return Error(Code::system, kTalking, "sending a datagram", errno);
}

std::optional<std::pair<Announcement, Fd>> ShareSocket::take(const Nonce& sender) const {
  for (;;) {
    Announcement in{};
    Envelope envelope(&in);
    const ssize_t got = ::recvmsg(socket_.get(), &envelope.message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    std::vector<Fd> descriptors = descriptorsOf(envelope.message);
    if (got != static_cast<ssize_t>(sizeof in) || descriptors.size() > 1 || !equalSecret(in.from, sender))
      continue;
    return std::pair(in, descriptors.empty() ? Fd() : std::move(descriptors.front()));
  }
}

}  // namespace weft::local
