// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/bootstrap.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "src/base/net/sockets.h"
#include "src/base/process.h"
#include "tools/netdriver/door.h"
#include "tools/netdriver/speaker.h"

namespace weft::netdriver {

namespace {

constexpr Milliseconds kDialPause{50};
constexpr Milliseconds kDialTimeout{1000};
constexpr Milliseconds kAnswerTimeout{2000};  // for a message that fits into a fresh socket's buffer

using Clock = std::chrono::steady_clock;

constexpr Milliseconds kSilence{3000};  // then who waits says for whom

constexpr Milliseconds kBeat{1000};

// Says once that something is waited for.
class LongWait {
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
  std::fprintf(stderr, "%sweft: %s: %s\n", speaker().c_str(), kRendezvous, text.c_str());
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

std::string nameOf(int rank) {
  return "rank " + std::to_string(rank);
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

// Tries every address of the name once. A host that drops our packets, as firewalls do, must not keep us for
// the minutes that the kernel would try. The rest of a rank's talk blocks, with time limits of its own.
Result<Fd> dialOnce(const std::vector<SocketAddress>& addresses, Clock::time_point end) {
  Result<Fd> fd = Error(Code::timeout, kRendezvous, "no time is left");
  for (const SocketAddress& address : addresses) {
    const auto left = std::clamp<Clock::duration>(end - Clock::now(), Milliseconds(1), kDialTimeout);
    fd = connectToOne({address}, {weft::Clock::system(), Clock::now() + left});
    if (!fd) continue;
    ::fcntl(fd->get(), F_SETFL, ::fcntl(fd->get(), F_GETFL) & ~O_NONBLOCK);
    break;
  }
  return fd;
}

// True where anything came within the time.
bool hears(int fd, Milliseconds time) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, static_cast<int>(time.count())) != 0;
}

// An address of an interface that is down can be listened on, and nobody gets there.
bool isReached(const SocketAddress& here) {
  const auto listener = weft::listenOn(here, "trying the loopback interface");
  if (!listener) return false;
  const Deadline soon{weft::Clock::system(), Clock::now() + kDialTimeout};
  return bool{connectToOne({localAddress(listener->get())}, soon)};
}

}  // namespace

Result<LocalListener> listenLocally() {
  constexpr std::array<std::byte, 16> kLoopback6{
      {{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::byte{1}}};
  for (const SocketAddress& here : {SocketAddress::loopback(), SocketAddress::of(kLoopback6, 0)}) {
    if (!isReached(here)) continue;
    LocalListener listener;
    listener.fd.reset(::socket(here.family(), SOCK_STREAM, 0));
    if (!listener.fd || ::bind(listener.fd.get(), here.raw(), here.length) != 0 ||
        ::listen(listener.fd.get(), 1024) != 0)
      continue;
    listener.host = here.ipText();
    listener.port = localAddress(listener.fd.get()).port();
    return listener;
  }
  return Error(Code::system, "starting ranks on this host",
               "nothing passes on the loopback interface: bring it up (ip link set lo up), or let a firewall "
               "pass it");
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::create(const Place& place, const Patience& patience) {
  auto bootstrap = std::make_unique<Bootstrap>(Key{});
  bootstrap->rank_ = place.rank;
  bootstrap->size_ = place.size;
  bootstrap->patience_ = patience;
  TRY(const Config config, readConfigFromEnvironment());
  TRY(const Protection protection, readProtection(config));
  bootstrap->key_ = keyOf(place.token, protection);
  if (place.size < 2) return bootstrap;
  TRY((place.rank == 0) != place.rootDials ? bootstrap->acceptAll(place) : bootstrap->dialRoot(place));
  return bootstrap;
}

Bootstrap::~Bootstrap() {
  if (!beating_.joinable()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_.get(), &one, sizeof(one));
  beating_.join();
}

// A thread of its own, as the one that measures has no time for it.
void Bootstrap::beginBeating() {
  if (patience_.silence.count() == 0) return;
  stop_.reset(::eventfd(0, EFD_CLOEXEC));
  beating_ = std::thread([this] {
    pollfd stop{stop_.get(), POLLIN, 0};
    while (::poll(&stop, 1, static_cast<int>(kBeat.count())) <= 0) {
      const std::lock_guard lock(mutex_);
      for (const auto& wire : wires_)
        if (wire) wire->sayAlive();
    }
  });
}

Wire* Bootstrap::wire(int rank) const {
  return wires_[rank_ == 0 ? static_cast<size_t>(rank) : 0].get();
}

// Finding each other:

namespace {

// An address of version 6 has to be told from its port.
std::string endpointOf(const Place& place) {
  const bool isIp = place.host.find(':') != std::string::npos;
  return (isIp ? "[" + place.host + "]" : place.host) + ":" + std::to_string(place.port);
}

// A run without a token is one of this host, and only who is on it comes to its door.
Result<Fd> listenAt(const Place& place) {
  if (place.listenFd >= 0) return Fd(place.listenFd);
  if (place.token.empty()) {
    TRY(const auto here, resolve(endpointOf(place), Resolving::toListen));
    return listenOn(here.front(), kRendezvous);
  }
  return listenOn(SocketAddress::any(AF_INET6, place.port), kRendezvous, Hears::bothFamilies);
}

// " at 192.0.2.7 that does not know the token of this run", empty: there was none.
std::string strangersText(const Door& door) {
  if (door.strangers() == 0) return {};
  return " at " + door.lastStranger() + " that does not know the token of this run (" + kTokenVariable +
         "), " + std::to_string(door.strangers()) + " so far";
}

}  // namespace

Status Bootstrap::acceptAll(const Place& place) {
  TRY(Fd listener, listenAt(place));
  Door door(std::move(listener), key_);
  wires_.resize(rank_ == 0 ? static_cast<size_t>(size_) : 1);
  beginBeating();  // those that are here wait for those that are not
  const auto end = deadline();
  auto lastCame = Clock::now();
  LongWait patience;
  size_t strangers = 0;
  for (int missing = size_ - 1; missing > 0;) {
    const auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now());
    if (left.count() <= 0)
      return Error(Code::timeout, kRendezvous,
                   "these did not appear: " + missingRanks() +
                       (door.strangers() > 0 ? "; refused a process" : "") + strangersText(door));
    if (patience_.missing.count() > 0 && Clock::now() - lastCame > patience_.missing) {
      say("goes on without those that did not appear: " + missingRanks());
      return {};
    }
    if (patience.isOver()) say("waiting at port " + std::to_string(place.port) + " for " + missingRanks());
    if (strangers == 0 && door.strangers() > 0) say("refused a process" + strangersText(door));
    strangers = door.strangers();
    auto caller = door.next(std::min(left, kSilence / 10));
    if (!caller) continue;
    TRY(const int came, take(std::move(caller->socket), caller->hello));
    missing -= came;
    if (came > 0) lastCame = Clock::now();
  }
  return {};
}

// How many ranks came: 1, or 0 for a rank of another run with our token.
Result<int> Bootstrap::take(Fd peer, const Hello& hello) {
  const int lowest = rank_ == 0 ? 1 : 0;
  const bool fits = hello.size == size_ && hello.rank >= lowest && hello.rank < size_ && hello.rank != rank_;
  auto* slot = fits ? &wires_[rank_ == 0 ? static_cast<size_t>(hello.rank) : 0] : nullptr;
  const Verdict verdict = !fits ? Verdict::otherSize : *slot ? Verdict::taken : Verdict::welcome;
  const Answer said = answer(key_, helloOf(rank_, size_), verdict, hello);
  setTimeouts(peer.get(), kAnswerTimeout);
  const Status sent = sendAll(peer.get(), std::as_bytes(std::span(&said, 1)), hello.rank);
  if (verdict == Verdict::otherSize)
    say("refused rank " + std::to_string(hello.rank) + " of " + std::to_string(hello.size) + " from " +
        remoteAddress(peer.get()).ipText() + ": this run has " + std::to_string(size_) + " ranks");
  if (verdict == Verdict::taken)
    return Error(Code::config, kRendezvous, "two processes claim rank " + std::to_string(hello.rank));
  if (!fits || !sent) return 0;
  const std::lock_guard lock(mutex_);
  *slot = std::make_unique<Wire>(std::move(peer), nameOf(hello), patience_.silence);
  return 1;
}

// "rank 1, 2, 5", and so on when they are many.
std::string Bootstrap::missingRanks() const {
  constexpr int kNamed = 16;
  std::string names;
  int missing = 0;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || wire(r) != nullptr) continue;
    if (missing++ < kNamed) names += (names.empty() ? "" : ", ") + std::to_string(r);
  }
  if (missing > kNamed) names += " and " + std::to_string(missing - kNamed) + " more";
  return (missing > 1 ? "ranks " : "rank ") + names + " of " + std::to_string(size_);
}

Result<Fd> Bootstrap::dial(const Place& place) {
  const std::string whom = "rank " + std::to_string(place.rootDials ? 1 : 0);
  const auto addresses = resolve(endpointOf(place), Resolving::toDial);
  if (!addresses)
    return Error(Code::config, kRendezvous, "address of " + whom + ": " + addresses.error().detail());
  const auto end = deadline();
  const std::string where = place.host + " port " + std::to_string(place.port);
  LongWait patience;
  auto fd = dialOnce(*addresses, end);
  while (!fd && Clock::now() < end) {
    std::this_thread::sleep_for(kDialPause);
    fd = dialOnce(*addresses, end);
    if (!fd && patience.isOver())
      say("rank " + std::to_string(rank_) + " waits for " + whom + " at " + where);
  }
  if (fd) return fd;
  return Error(Code::system, kRendezvous, whom + " does not answer at " + where, fd.error().errnum());
}

Status Bootstrap::dialRoot(const Place& place) {
  TRY(Fd fd, dial(place));
  return greet(std::move(fd), place.host + " port " + std::to_string(place.port));
}

Status Bootstrap::greet(Fd fd, const std::string& where) {
  setTimeouts(fd.get(), patience_.timeout);
  const auto refused = [&](const std::string& why) {
    return Error(Code::config, kRendezvous, "at " + where + why);
  };
  // The kernel accepts for a process that is not there yet, or stopped.
  if (!hears(fd.get(), kSilence))
    say("rank " + std::to_string(rank_) + " waits for an answer at " + where + "; is that rank 0?");
  Opening opening;
  TRY(receiveAll(fd.get(), std::as_writable_bytes(std::span(&opening, 1)), 0));
  if (opening.magic != kGreetingMagic) return refused(" is something else than rank 0 of this version");
  const Hello hello = helloOf(rank_, size_);
  const Introduction introduction = introduce(key_, hello, opening);
  TRY(sendAll(fd.get(), std::as_bytes(std::span(&introduction, 1)), 0));
  Answer answer;
  TRY(receiveAll(fd.get(), std::as_writable_bytes(std::span(&answer, 1)), 0));
  if (answer.verdict == Verdict::stranger || !isProven(key_, answer, hello))
    return refused(
        std::string(" is a run with another token or another WEFT_SECRET: give all its ranks one ") +
        kTokenVariable);
  if (answer.verdict == Verdict::taken)
    return refused(" another process is rank " + std::to_string(rank_) + " already");
  if (answer.verdict == Verdict::otherSize)
    return refused(" is a run of " + std::to_string(answer.from.size) + " ranks; this is rank " +
                   std::to_string(rank_) + " of " + std::to_string(size_));
  wires_.resize(rank_ == 0 ? static_cast<size_t>(size_) : 1);
  wires_.back() = std::make_unique<Wire>(std::move(fd), nameOf(answer.from), patience_.silence);
  beginBeating();
  return {};
}

// Talking:

Status Bootstrap::tell(int rank, std::span<const std::byte> message) {
  Wire* to = wire(rank);
  if (to == nullptr) return Error(Code::remote, kRendezvous, "rank " + std::to_string(rank) + " is missing");
  return to->send(message);
}

Result<std::vector<std::byte>> Bootstrap::hear(int rank, Moment deadline, size_t most) {
  Wire* from = wire(rank);
  if (from == nullptr)
    return Error(Code::remote, kRendezvous, "rank " + std::to_string(rank) + " is missing");
  return from->receiveAny(deadline, most);
}

void Bootstrap::lose(int rank) {
  const std::lock_guard lock(mutex_);
  wires_[rank_ == 0 ? static_cast<size_t>(rank) : 0].reset();
}

// The first that comes is served: a rank that is gone must not hide behind one that is slow or stopped.
void Bootstrap::hearEach(std::vector<int> ranks, Moment deadline, size_t most, const Visit& visit) {
  std::erase_if(ranks, [&](int rank) { return wire(rank) == nullptr; });
  for (const int rank : ranks) wire(rank)->begin();
  std::vector<pollfd> waits;
  while (!ranks.empty()) {
    const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
    waits.clear();
    for (const int rank : ranks) waits.push_back({wire(rank)->fd(), POLLIN, 0});
    if (left.count() > 0)
      (void)::poll(waits.data(), waits.size(),
                   static_cast<int>(std::min<Milliseconds>(left, kSilence / 10).count()));
    std::vector<int> still;
    for (size_t i = 0; i < ranks.size(); ++i) {
      Wire& from = *wire(ranks[i]);
      std::optional<Result<std::vector<std::byte>>> heard;
      if (waits[i].revents != 0) {
        auto taken = from.take(most);
        if (!taken)
          heard = taken.takeError();
        else if (*taken)
          heard = std::move(**taken);
      } else if (Status well = from.look(); !well) {
        heard = well.takeError();
      }
      if (!heard && left.count() <= 0)
        heard = Error(Code::timeout, kRendezvous, "no answer from " + from.peer());
      if (!heard)
        still.push_back(ranks[i]);
      else if (!visit(ranks[i], std::move(*heard)))
        return;
    }
    ranks = std::move(still);
  }
}

// A failure that another rank is to blame for is passed on as it is.
void Bootstrap::abandon(const std::string& why) {
  const std::string prefix = std::string(kRendezvous) + ": ";
  std::string words = why.starts_with(prefix) ? why.substr(prefix.size()) : why;
  if (!words.starts_with("rank "))
    words = "rank " + std::to_string(rank_) + " on " + hostName() + " failed: " + words;
  const std::lock_guard lock(mutex_);
  for (const auto& wire : wires_)
    if (wire) wire->sayLastWords(words);
}

Status Bootstrap::gatherToRoot(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (rank_ != 0) return wires_[0]->send(mine);
  std::vector<int> due;
  for (int r = 0; r < size_; ++r) {
    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * r);
    if (r > 0) due.push_back(r);
  }
  Status result;
  hearEach(std::move(due), deadline(), mine.size(), [&](int rank, Result<std::vector<std::byte>> message) {
    if (message && message->size() != mine.size())
      message = Error(Code::remote, kRendezvous, wire(rank)->peer() + " sent another message than was due");
    if (!message) {
      result = message.takeError();
      return false;
    }
    std::copy(message->begin(), message->end(),
              all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * rank);
    return true;
  });
  return result;
}

Status Bootstrap::allGather(std::span<const std::byte> mine, std::span<std::byte> all) {
  TRY(gatherToRoot(mine, all));
  return fromRoot(all);
}

Status Bootstrap::fromRoot(std::span<std::byte> bytes) {
  if (rank_ != 0) return wires_[0]->receive(bytes, deadline());
  for (int r = 1; r < size_; ++r)
    if (Wire* to = wire(r)) TRY(to->send(bytes));
  return {};
}

Status Bootstrap::barrier() {
  TRY(gatherValues(std::byte{0}));
  return {};
}

}  // namespace weft::netdriver
