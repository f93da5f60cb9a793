// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/played_tcp.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/base/log.h"

namespace weft::world {

namespace {

constexpr auto kResend = std::chrono::milliseconds(20);  // of a packet that was lost, the first time
constexpr int kMostTries = 6;
PlayedTcp* playing = nullptr;

}  // namespace

std::string TcpHabits::text() const {
  return format(
      "over tcp%s: %.3f ms away, up to %.3f ms more, %llu MB/s, buffers of %zu, %llu of 8 calls cut short\n",
      v6 ? " with IPv6" : "", static_cast<double>(latency.count()) / 1e6,
      static_cast<double>(jitter.count()) / 1e6, static_cast<unsigned long long>(bytesPerUs), buffer,
      static_cast<unsigned long long>(shortOf8));
}

PlayedTcp* PlayedTcp::running() {
  return playing;
}

PlayedTcp::PlayedTcp(Scheduler& scheduler, Journal& journal, const TcpHabits& habits, bool plays,
                     uint64_t seed)
    : scheduler_(scheduler), journal_(journal), habits_(habits), random_(seed ^ 0x736f636b) {
  if (plays) playing = this;
}

PlayedTcp::~PlayedTcp() {
  if (playing == this) playing = nullptr;
}

// Hosts, their addresses and what is done to them.

SocketAddress PlayedTcp::addressOf(int host, int rail, bool v6) {
  std::array<uint8_t, 16> ip{};
  const std::array<uint8_t, 4> low{10, static_cast<uint8_t>(rail), static_cast<uint8_t>(host >> 8),
                                   static_cast<uint8_t>(host)};
  if (!v6) return SocketAddress::of(std::as_bytes(std::span(low)), 0);
  ip[0] = 0xfd;
  std::copy(low.begin(), low.end(), ip.begin() + 12);
  return SocketAddress::of(std::as_bytes(std::span(ip)), 0);
}

void PlayedTcp::addRails(int host, int rails) {
  rails_[host] = rails;
}

std::vector<Interface> PlayedTcp::interfaces() const {
  std::vector<Interface> found;
  const auto known = rails_.find(caller());
  for (int rail = 0; known != rails_.end() && rail < known->second; rail++)
    found.push_back({"rail" + std::to_string(rail), false, addressOf(known->first, rail)});
  return found;
}

std::string PlayedTcp::keyOf(const SocketAddress& address) {
  return address.text();
}

bool PlayedTcp::isOf(const Socket& socket, int host, int rail) const {
  const std::string ip = addressOf(host, rail).ipText();
  return socket.state != State::fresh && (socket.local.ipText() == ip || socket.remote.ipText() == ip);
}

void PlayedTcp::kill(int host) {
  dead_.insert(host);
  for (const auto& [fd, socket] : sockets_)
    if (socket->host == host && socket->open) leave(socket);
}

// Both ends are told, as by a box between them that has forgotten the connection.
void PlayedTcp::reset(int host, int rail, bool oneOnly) {
  for (const auto& [fd, socket] : sockets_) {
    if (socket->state != State::stands || !isOf(*socket, host, rail)) continue;
    const Ref other = socket->other.lock();
    if (socket->reset || !other) continue;
    tellReset(socket);
    tellReset(other);
    if (oneOnly) return;
  }
}

// What is on its way is lost and sent again.
void PlayedTcp::down(int host, int rail, TimePoint until) {
  TimePoint& end = downUntil_[addressOf(host, rail).ipText()];
  end = std::max(end, until);
  for (const auto& [fd, socket] : sockets_) {
    if (!isOf(*socket, host, rail)) continue;
    const TimePoint again = upAgain(socket->local, socket->remote);
    for (Chunk& chunk : socket->in)
      if (chunk.arrives > now()) chunk.arrives = std::max(chunk.arrives, again);
    socket->lastArrival = std::max(socket->lastArrival, again);
    if (socket->fin && *socket->fin > now()) socket->fin = std::max(*socket->fin, again);
    if (socket->reset && *socket->reset > now()) socket->reset = std::max(*socket->reset, again);
  }
}

TimePoint PlayedTcp::upAgain(const SocketAddress& a, const SocketAddress& b) const {
  TimePoint when = now();
  for (const SocketAddress& address : {a, b}) {
    const auto known = downUntil_.find(address.ipText());
    if (known == downUntil_.end() || known->second <= now()) continue;
    if (known->second == TimePoint::max()) return TimePoint::max();
    when = std::max(when, known->second + kResend);
  }
  return when;
}

void PlayedTcp::refuseDescriptors(int host, TimePoint until) {
  noneUntil_[host] = std::max(noneUntil_[host], until);
}

// Descriptors.

std::string PlayedTcp::complaint() const {
  return complaint_;
}

int PlayedTcp::failWith(int error) {
  errno = error;
  return -1;
}

ssize_t PlayedTcp::counted(ssize_t result) {
  journal_.mix(static_cast<uint64_t>(result) ^ 0x7463);
  return result;
}

bool PlayedTcp::mayOpen() {
  const auto none = noneUntil_.find(caller());
  return none == noneUntil_.end() || none->second <= now();
}

int PlayedTcp::enter(Ref socket) {
  socket->fd = ++lastFd_;
  socket->host = caller();
  sockets_[socket->fd] = socket;
  return socket->fd;
}

// No number comes twice, so that a descriptor which is used after it was closed is found.
PlayedTcp::Ref PlayedTcp::find(int fd, const char* call) {
  const auto known = sockets_.find(fd);
  if (known != sockets_.end()) return known->second;
  if (complaint_.empty()) complaint_ = format("%s by rank %d of a descriptor that is closed", call, caller());
  errno = EBADF;
  return nullptr;
}

int PlayedTcp::socket() {
  if (!mayOpen()) return failWith(EMFILE);
  return enter(std::make_shared<Socket>());
}

int PlayedTcp::bind(int fd, const SocketAddress& at) {
  const Ref socket = find(fd, "bind");
  if (!socket) return -1;
  socket->local = at.port() != 0 ? at : at.withPort(++lastPort_);
  return listeners_.contains(keyOf(socket->local)) ? failWith(EADDRINUSE) : 0;
}

int PlayedTcp::listen(int fd) {
  const Ref socket = find(fd, "listen");
  if (!socket) return -1;
  socket->state = State::listening;
  listeners_[keyOf(socket->local)] = socket;
  return 0;
}

int PlayedTcp::lingerNot(int fd) {
  const Ref socket = find(fd, "setsockopt");
  if (!socket) return -1;
  socket->lingers = false;
  return 0;
}

int PlayedTcp::nameOf(int fd, bool peers, SocketAddress* out) {
  const Ref socket = find(fd, "getsockname");
  if (!socket) return -1;
  *out = peers ? socket->remote : socket->local;
  return 0;
}

int PlayedTcp::errorOf(int fd, int* error) {
  const Ref socket = find(fd, "getsockopt");
  if (!socket) return -1;
  *error = settle(*socket) ? std::exchange(socket->error, 0) : 0;
  return 0;
}

// A flow whose buffer is nearly full has more to send than it may, and has had that since it stands.
int PlayedTcp::countsOf(int fd, tcp_info* out) {
  const Ref socket = find(fd, "getsockopt");
  if (!socket) return -1;
  *out = tcp_info{};
  const Ref other = socket->other.lock();
  if (!other || !settle(*socket)) return 0;
  out->tcpi_bytes_acked = socket->sent - (other->waiting - arrived(*other));
  out->tcpi_busy_time = static_cast<uint64_t>((now() - socket->standsAt).count() / 1000);
  out->tcpi_notsent_bytes = other->waiting * 2 > habits_.buffer ? 1 : 0;
  return 0;
}

// Connecting: the first packet finds somebody who listens, or nobody, or is lost and comes again.

int PlayedTcp::connect(int fd, const SocketAddress& to) {
  const Ref socket = find(fd, "connect");
  if (!socket) return -1;
  socket->remote = to;
  socket->state = State::connecting;
  socket->standsAt = TimePoint::max();
  if (dead_.contains(socket->host)) {
    socket->state = State::failed;
    socket->error = ENETUNREACH;
  } else {
    hello(socket, 0);
  }
  return failWith(EINPROGRESS);
}

void PlayedTcp::hello(const Ref& from, int tries) {
  if (upAgain(from->local, from->remote) > now()) {
    if (tries == kMostTries) {
      from->error = ETIMEDOUT;
      from->state = State::failed;
    } else {
      scheduler_.after(kResend * (1 << tries), [this, from, tries] {
        if (from->open) hello(from, tries + 1);
      });
    }
    return;
  }
  scheduler_.after(
      habits_.latency + Nanoseconds(random_.below(static_cast<uint64_t>(habits_.jitter.count()))),
      [this, from] {
        if (!from->open) return;
        const auto known = listeners_.find(keyOf(from->remote));
        const Ref listener = known == listeners_.end() ? nullptr : known->second.lock();
        if (!listener || !listener->open || dead_.contains(listener->host)) {
          from->error = ECONNREFUSED;
          from->state = State::failed;
          return;
        }
        const Ref answering = std::make_shared<Socket>();
        answering->state = from->state = State::stands;
        answering->local = from->remote;
        answering->remote = from->local;
        answering->host = listener->host;
        answering->other = from;
        answering->fresh = true;
        from->other = answering;
        from->standsAt = now() + habits_.latency;
        answering->standsAt = now() + 2 * habits_.latency;
        listener->backlog.push_back(answering);
      });
}

int PlayedTcp::accept(int fd) {
  const Ref listener = find(fd, "accept");
  if (!listener) return -1;
  if (listener->backlog.empty() || listener->backlog.front()->standsAt > now()) return failWith(EAGAIN);
  if (!mayOpen()) return failWith(EMFILE);
  const Ref socket = listener->backlog.front();
  listener->backlog.pop_front();
  return enter(socket);
}

// Data.

TimePoint PlayedTcp::arrival(const Socket& from, const Socket& to, size_t bytes) {
  const auto more = random_.below(static_cast<uint64_t>(habits_.jitter.count()));
  const auto wire = Nanoseconds(1000 * bytes / habits_.bytesPerUs);
  const TimePoint up = upAgain(from.local, from.remote);
  if (up == TimePoint::max()) return up;
  const TimePoint soonest = std::max(up, now()) + habits_.latency + Nanoseconds(more);
  return to.lastArrival == TimePoint::max() ? to.lastArrival : std::max(soonest, to.lastArrival) + wire;
}

size_t PlayedTcp::atMost(Socket& socket, size_t bytes) {
  constexpr size_t kSmall = 2048;
  if (std::exchange(socket.fresh, false) && bytes <= kSmall) return bytes;
  return bytes > 1 && random_.below(8) < habits_.shortOf8 ? 1 + random_.below(bytes) : bytes;
}

// What became of it meanwhile. False: it does not stand yet, which is no error.
bool PlayedTcp::settle(Socket& socket) {
  if (socket.state == State::connecting) return false;
  if (socket.state == State::stands && socket.standsAt > now()) return false;
  if (socket.reset && *socket.reset <= now() && !socket.over) {
    socket.error = ECONNRESET;
    socket.over = true;
  }
  if (socket.state == State::failed) socket.over = true;
  return true;
}

ssize_t PlayedTcp::send(int fd, std::span<const iovec> parts) {
  const Ref socket = find(fd, "send");
  if (!socket) return -1;
  if (!settle(*socket)) return failWith(EAGAIN);
  if (socket->error != 0) return failWith(std::exchange(socket->error, 0));
  if (socket->over || !socket->open || socket->saidAll) return failWith(EPIPE);
  size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  const Ref other = socket->other.lock();
  if (!other || !other->open) {  // a kernel without that connection says so
    if (!socket->reset)
      socket->reset = std::max(now(), upAgain(socket->local, socket->remote)) + 2 * habits_.latency;
    return counted(static_cast<ssize_t>(bytes));
  }
  const size_t room = habits_.buffer - std::min(habits_.buffer, other->waiting);
  if (room == 0) return counted(failWith(EAGAIN));
  bytes = atMost(*socket, std::min(bytes, room));
  Chunk chunk{arrival(*socket, *other, bytes), {}, 0};
  chunk.bytes.reserve(bytes);
  for (const iovec& part : parts) {
    const auto* from = static_cast<const std::byte*>(part.iov_base);
    chunk.bytes.insert(chunk.bytes.end(), from, from + std::min(part.iov_len, bytes - chunk.bytes.size()));
  }
  other->lastArrival = chunk.arrives;
  other->waiting += bytes;
  socket->sent += bytes;
  other->in.push_back(std::move(chunk));
  return counted(static_cast<ssize_t>(bytes));
}

size_t PlayedTcp::arrived(const Socket& socket) const {
  size_t bytes = 0;
  for (const Chunk& chunk : socket.in) {
    if (chunk.arrives > now()) break;
    bytes += chunk.bytes.size() - chunk.taken;
  }
  return bytes;
}

ssize_t PlayedTcp::receive(int fd, std::span<const iovec> parts, bool peek) {
  const Ref socket = find(fd, "recv");
  if (!socket) return -1;
  if (!settle(*socket)) return failWith(EAGAIN);
  size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  bytes = std::min(bytes, arrived(*socket));
  if (bytes == 0) {  // what came before the end can still be read
    if (socket->error != 0) return counted(failWith(std::exchange(socket->error, 0)));
    const bool over = socket->over || !socket->open || socket->deaf;
    if (over || (socket->fin && *socket->fin <= now())) return counted(0);
    return failWith(EAGAIN);
  }
  if (peek) return 1;
  bytes = atMost(*socket, bytes);
  size_t done = 0;
  for (const iovec& part : parts) {
    for (size_t at = 0; at < part.iov_len && done < bytes;) {
      Chunk& first = socket->in.front();
      const size_t more = std::min({first.bytes.size() - first.taken, part.iov_len - at, bytes - done});
      std::memcpy(static_cast<std::byte*>(part.iov_base) + at, first.bytes.data() + first.taken, more);
      first.taken += more;
      at += more;
      done += more;
      if (first.taken == first.bytes.size()) socket->in.pop_front();
    }
  }
  socket->waiting -= bytes;
  return counted(static_cast<ssize_t>(bytes));
}

// Ends.

void PlayedTcp::tellReset(const Ref& socket) {
  if (socket->reset) return;
  const TimePoint up = upAgain(socket->local, socket->remote);
  socket->reset = up == TimePoint::max() ? up : std::max(now(), up) + habits_.latency;
  // Of what is on its way some is overtaken.
  const auto from = std::find_if(socket->in.begin(), socket->in.end(),
                                 [&](const Chunk& chunk) { return chunk.arrives > *socket->reset; });
  for (auto lost = from; lost != socket->in.end(); ++lost)
    socket->waiting -= lost->bytes.size() - lost->taken;
  socket->in.erase(from, socket->in.end());
}

// The process has it no more. Bytes that nobody read make the kernel say so with a reset.
void PlayedTcp::leave(const Ref& socket) {
  socket->open = false;
  if (socket->state == State::listening) {
    listeners_.erase(keyOf(socket->local));
    for (const Ref& guest : socket->backlog) leave(guest);
    socket->backlog.clear();
  }
  const Ref other = socket->other.lock();
  if (!other || !other->open) return;
  const size_t unread = arrived(*socket);
  if (unread > 0 || !socket->lingers) return tellReset(other);
  sayEnd(*socket);
  if (!socket->in.empty() && socket->in.back().arrives != TimePoint::max())
    other->reset = std::max(*other->fin, socket->in.back().arrives + habits_.latency);
}

// The end of what is sent, which is told once.
void PlayedTcp::sayEnd(Socket& socket) {
  const Ref other = socket.other.lock();
  if (std::exchange(socket.saidAll, true) || !other) return;
  const TimePoint end = arrival(socket, *other, 0);
  other->fin = end;
  other->lastArrival = end;
}

// The connection stays, and may be read unless both ways are shut.
int PlayedTcp::shutdown(int fd, int how) {
  const Ref socket = find(fd, "shutdown");
  if (!socket) return -1;
  if (socket->state != State::stands) return failWith(ENOTCONN);
  sayEnd(*socket);
  socket->deaf = socket->deaf || how == SHUT_RDWR;
  return 0;
}

int PlayedTcp::close(int fd) {
  if (epolls_.erase(fd) > 0) return 0;
  const Ref socket = find(fd, "close");
  if (!socket) return -1;
  if (socket->open) leave(socket);
  sockets_.erase(fd);
  for (auto& [number, epoll] : epolls_) {
    epoll.sockets.erase(fd);
    epoll.armed.erase(fd);
  }
  return 0;
}

}  // namespace weft::world
