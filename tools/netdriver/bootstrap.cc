// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/bootstrap.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

namespace weft::netdriver {

namespace {

constexpr const char* kRendezvous = "rendezvous";
constexpr Milliseconds kDialPause{50};
constexpr Milliseconds kDialTimeout{1000};
constexpr Milliseconds kHelloTimeout{2000};  // a client that connects and stays silent holds up the rest

using Clock = std::chrono::steady_clock;

constexpr Milliseconds kSilence{3000};  // then who waits says for whom

// The first bytes of a connection, each way: they keep a stray client from taking a rank's place.
struct Hello {
  uint64_t magic = 0x7765667470657268;  // "weftperh": changes with what ranks then tell each other
  int32_t rank = 0;
  int32_t size = 0;
};
// Rank 0's answer; its size is that of its run.
enum class Verdict : int32_t { welcome, otherSize, taken };
struct Answer {
  Hello from;
  Verdict verdict = Verdict::welcome;
  int32_t unused = 0;
};

// Says once that something is waited for.
class Patience {
 public:
  bool isOver() {
    if (said_ || Clock::now() < end_) return false;
    said_ = true;
    return true;
  }

 private:
  Clock::time_point end_ = Clock::now() + kSilence;
  bool said_ = false;
};

void say(const std::string& text) {
  std::fprintf(stderr, "weft: %s: %s\n", kRendezvous, text.c_str());
}

Error systemError(std::string detail) {
  return {Code::system, kRendezvous, std::move(detail), errno};
}

void setTimeouts(int fd, Milliseconds timeout) {
  const auto ms = timeout.count();
  const timeval value{ms / 1000, (ms % 1000) * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof(value));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof(value));
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

constexpr int kStranger = -1;  // no rank yet

std::string nameOf(int rank) {
  return rank == kStranger ? "somebody" : "rank " + std::to_string(rank);
}

// `peer` is the rank at the other end.
Status sendAll(int fd, std::span<const std::byte> bytes, int peer) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return systemError(nameOf(peer) + " no longer takes data; it may have failed");
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return {};
}

Status receiveAll(int fd, std::span<std::byte> bytes, int peer) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0)
      return Error(Code::remote, kRendezvous, nameOf(peer) + " closed its connection; it may have failed");
    if (got < 0) return systemError("no answer from " + nameOf(peer));
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return {};
}

Result<Fd> listenOn(uint16_t port) {
  Fd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return systemError("socket");
  const int on = 1;
  const int off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(port);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)) != 0 || ::listen(fd.get(), 1024) != 0)
    return systemError("listen on port " + std::to_string(port));
  return fd;
}

// Of the other end: "10.0.0.7".
std::string addressOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  char host[NI_MAXHOST] = "";
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(fd, generic, &length) != 0 ||
      getnameinfo(generic, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0)
    return "somewhere";
  return host;
}

// One attempt over every address of the name. What drops our packets, as firewalls do, must not keep us for
// the minutes that the kernel would try.
Fd dialOnce(const addrinfo* addresses, Clock::time_point deadline) {
  for (const addrinfo* a = addresses; a != nullptr; a = a->ai_next) {
    Fd fd(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) continue;
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
    setTimeouts(fd.get(), std::clamp(left, Milliseconds(1), kDialTimeout));
    if (::connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0) return fd;
    if (errno == EINPROGRESS) errno = ETIMEDOUT;
  }
  return Fd();
}

// Whether anything came within the time.
bool hears(int fd, Milliseconds time) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, static_cast<int>(time.count())) != 0;
}

}  // namespace

Result<LocalListener> listenLocally() {
  LocalListener listener;
  listener.fd.reset(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!listener.fd || ::bind(listener.fd.get(), generic, length) != 0 ||
      ::listen(listener.fd.get(), 1024) != 0 || ::getsockname(listener.fd.get(), generic, &length) != 0)
    return systemError("listen on the loopback interface");
  listener.port = ntohs(address.sin_port);
  return listener;
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::create(const Place& place, Milliseconds timeout) {
  auto bootstrap = std::make_unique<Bootstrap>(Key{});
  bootstrap->rank_ = place.rank;
  bootstrap->size_ = place.size;
  bootstrap->timeout_ = timeout;
  if (place.size > 1 && place.rank == 0) TRY(bootstrap->acceptAll(place, timeout));
  if (place.size > 1 && place.rank != 0) TRY(bootstrap->dialRoot(place, timeout));
  return bootstrap;
}

Status Bootstrap::acceptAll(const Place& place, Milliseconds timeout) {
  Fd listener(place.listenFd);
  if (!listener) {
    TRY(Fd opened, listenOn(place.port));
    listener = std::move(opened);
  }
  peers_.resize(static_cast<size_t>(size_));
  const auto deadline = Clock::now() + timeout;
  Patience patience;
  for (int missing = size_ - 1; missing > 0;) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
    if (left.count() <= 0)
      return Error(Code::timeout, kRendezvous, "these did not appear: " + missingRanks());
    if (patience.isOver()) say("waiting at port " + std::to_string(place.port) + " for " + missingRanks());
    pollfd wait{listener.get(), POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(std::min(left, kSilence / 10).count())) <= 0) continue;
    TRY(const int came, acceptOne(listener.get(), timeout));
    missing -= came;
  }
  return {};
}

// How many ranks came: 1, or 0 for a stray client and a rank of another run.
Result<int> Bootstrap::acceptOne(int listener, Milliseconds timeout) {
  Fd peer(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (!peer) return 0;
  setTimeouts(peer.get(), kHelloTimeout);
  Hello hello;
  if (!receiveAll(peer.get(), std::as_writable_bytes(std::span(&hello, 1)), kStranger)) return 0;
  if (hello.magic != Hello().magic) return 0;
  Answer answer;
  answer.from.size = size_;
  const bool fits = hello.size == size_ && hello.rank > 0 && hello.rank < size_;
  if (!fits) answer.verdict = Verdict::otherSize;
  Fd* slot = fits ? &peers_[static_cast<size_t>(hello.rank)] : nullptr;
  if (slot != nullptr && *slot) answer.verdict = Verdict::taken;
  const Status sent = sendAll(peer.get(), std::as_bytes(std::span(&answer, 1)), hello.rank);
  if (answer.verdict == Verdict::otherSize)
    say("refused rank " + std::to_string(hello.rank) + " of " + std::to_string(hello.size) + " from " +
        addressOf(peer.get()) + ": this run has " + std::to_string(size_) + " ranks");
  if (answer.verdict == Verdict::taken)
    return Error(Code::config, kRendezvous, "two processes claim rank " + std::to_string(hello.rank));
  if (!fits || !sent) return 0;
  setTimeouts(peer.get(), timeout);
  *slot = std::move(peer);
  return 1;
}

// "rank 1, 2, 5", and so on when they are many.
std::string Bootstrap::missingRanks() const {
  constexpr int kNamed = 16;
  std::string names;
  int missing = 0;
  for (size_t r = 1; r < peers_.size(); ++r) {
    if (peers_[r]) continue;
    if (missing++ < kNamed) names += (names.empty() ? "" : ", ") + std::to_string(r);
  }
  if (missing > kNamed) names += " and " + std::to_string(missing - kNamed) + " more";
  return (missing > 1 ? "ranks " : "rank ") + names + " of " + std::to_string(size_);
}

Status Bootstrap::dialRoot(const Place& place, Milliseconds timeout) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int rc = getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &hints, &found);
      rc != 0)
    return Error(Code::config, kRendezvous, "address of rank 0, " + place.host + ": " + gai_strerror(rc));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  const auto deadline = Clock::now() + timeout;
  const std::string where = place.host + " port " + std::to_string(place.port);
  Patience patience;
  Fd fd = dialOnce(addresses.get(), deadline);
  while (!fd && Clock::now() < deadline) {
    std::this_thread::sleep_for(kDialPause);
    fd = dialOnce(addresses.get(), deadline);
    if (!fd && patience.isOver()) say("rank " + std::to_string(rank_) + " waits for rank 0 at " + where);
  }
  if (!fd) return systemError("rank 0 does not answer at " + where);
  setTimeouts(fd.get(), timeout);
  Hello hello;
  hello.rank = rank_;
  hello.size = size_;
  TRY(sendAll(fd.get(), std::as_bytes(std::span(&hello, 1)), 0));
  // Rank 0 answers at once. What else may listen there, a torchrun agent for one, waits for us to go on.
  if (!hears(fd.get(), kSilence))
    say("rank " + std::to_string(rank_) + " waits for an answer at " + where + "; is that rank 0?");
  TRY(hearAnswer(fd.get(), where));
  peers_.push_back(std::move(fd));
  return {};
}

Status Bootstrap::hearAnswer(int fd, const std::string& where) const {
  Answer answer;
  TRY(receiveAll(fd, std::as_writable_bytes(std::span(&answer, 1)), 0));
  const auto refused = [&](const std::string& why) {
    return Error(Code::config, kRendezvous, "at " + where + why);
  };
  if (answer.from.magic != Hello().magic) return refused(" is something else than rank 0 of this version");
  if (answer.verdict == Verdict::taken)
    return refused(" another process is rank " + std::to_string(rank_) + " already");
  if (answer.verdict == Verdict::otherSize)
    return refused(" is a run of " + std::to_string(answer.from.size) + " ranks; this is rank " +
                   std::to_string(rank_) + " of " + std::to_string(size_));
  return {};
}

Status Bootstrap::gatherToRoot(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (rank_ != 0) return sendAll(peers_[0].get(), mine, 0);
  std::copy(mine.begin(), mine.end(), all.begin());
  std::vector<pollfd> due;  // by rank; a negative descriptor is none to poll
  for (const Fd& peer : peers_) due.push_back({peer ? peer.get() : -1, POLLIN, 0});
  for (int left = size_ - 1; left > 0;) {
    if (left > 1) TRY(awaitAny(due));  // the last one is just waited for
    for (size_t r = 1; r < due.size(); ++r) {
      if (due[r].fd < 0 || (left > 1 && due[r].revents == 0)) continue;
      TRY(receiveAll(due[r].fd, all.subspan(r * mine.size(), mine.size()), static_cast<int>(r)));
      due[r] = {-1, 0, 0};
      left--;
    }
  }
  return {};
}

// Whoever comes first: a rank that is gone must not hide behind one that is slow or stopped.
Status Bootstrap::awaitAny(std::vector<pollfd>& due) const {
  const auto deadline = Clock::now() + timeout_;
  int ready = -1;
  while (ready < 0) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
    const auto ms = std::clamp<Milliseconds::rep>(left.count(), 0, std::numeric_limits<int>::max());
    ready = ::poll(due.data(), due.size(), static_cast<int>(ms));
    if (ready < 0 && errno != EINTR) return systemError("waiting for the other ranks");
  }
  if (ready > 0) return {};
  const auto silent = std::find_if(due.begin(), due.end(), [](const pollfd& one) { return one.fd >= 0; });
  return Error(Code::timeout, kRendezvous,
               "no answer from " + nameOf(static_cast<int>(silent - due.begin())));
}

Status Bootstrap::allGather(std::span<const std::byte> mine, std::span<std::byte> all) {
  TRY(gatherToRoot(mine, all));
  return fromRoot(all);
}

Status Bootstrap::fromRoot(std::span<std::byte> bytes) {
  if (rank_ != 0) return receiveAll(peers_[0].get(), bytes, 0);
  for (size_t r = 1; r < peers_.size(); ++r) TRY(sendAll(peers_[r].get(), bytes, static_cast<int>(r)));
  return {};
}

Status Bootstrap::barrier() {
  TRY(gatherValues(std::byte{0}));
  return {};
}

}  // namespace weft::netdriver
