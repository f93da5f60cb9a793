// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/hostile/links_middle.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "src/base/random.h"

// His thread, and the connect(2) that leads to him.
namespace weft::hostile {

namespace {

std::atomic<Middle*> theOne{nullptr};
thread_local bool his = false;

sockaddr_in loopback(uint16_t port, uint8_t last = 1) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(0x7f000000u | last);
  return address;
}

bool sendWhole(int fd, const Bytes& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

struct Middle::Pipe {
  Fd dialler;
  Fd acceptor;
  Plan plan;
  bool first = false;
  size_t passed[2] = {0, 0};  // bytes of each direction; 1: to the acceptor
  bool held[2] = {false, false};
  bool over = false;
};

Plan planOf(uint64_t seed, size_t places) {
  SeededRandom random(seed);
  Plan plan;
  plan.trick = static_cast<Trick>(1 + random.below(kTricks - 1));
  plan.toAcceptor = random.below(2) == 0;
  plan.at = random.below(places);
  plan.always = random.below(4) == 0;
  return plan;
}

const char* nameOf(Trick trick) {
  constexpr const char* kNames[kTricks] = {"none", "flip", "cut", "repeat", "swap", "insert", "hold"};
  return kNames[static_cast<size_t>(trick)];
}

Middle::Middle() {
  theOne = this;
  thread_ = std::thread([this] { run(); });
}

Middle::~Middle() {
  theOne = nullptr;
  ends_ = true;
  thread_.join();
}

Middle* Middle::present() {
  return theOne;
}

bool Middle::isHis() {
  return his;
}

void Middle::follow(const Plan& plan) {
  const std::lock_guard lock(mutex_);
  plan_ = plan;
  connections_ = 0;
  played_ = false;
  for (Bytes& bytes : heard_) bytes.clear();
}

Bytes Middle::heard(bool toAcceptor) const {
  const std::lock_guard lock(mutex_);
  return heard_[toAcceptor ? 1 : 0];
}

uint16_t Middle::portFor(uint16_t port) {
  const std::lock_guard lock(mutex_);
  if (const auto known = ports_.find(port); known != ports_.end()) return known->second;
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd.get(), raw, length) != 0 || ::listen(fd.get(), 128) != 0) return 0;
  if (::getsockname(fd.get(), raw, &length) != 0) return 0;
  doors_.push_back({std::move(fd), [port] { return dialPast(port); }});
  return ports_[port] = ntohs(address.sin_port);
}

void Middle::run() {
  his = true;
  while (!ends_) {
    std::vector<pollfd> asked;
    std::unique_lock lock(mutex_);
    for (const Door& door : doors_) accept(door);
    bool any = false;
    for (const auto& pipe : pipes_) any = relay(*pipe) || any;
    std::erase_if(pipes_, [](const auto& pipe) { return pipe->over; });
    if (any) continue;
    for (const Door& door : doors_) asked.push_back({door.listener.get(), POLLIN, 0});
    for (const auto& pipe : pipes_) {
      if (!pipe->held[1]) asked.push_back({pipe->dialler.get(), POLLIN, 0});
      if (!pipe->held[0]) asked.push_back({pipe->acceptor.get(), POLLIN, 0});
    }
    lock.unlock();
    (void)::poll(asked.data(), asked.size(), 1);
  }
}

void Middle::stand(Fd listener, Onward onward) {
  const std::lock_guard lock(mutex_);
  doors_.push_back({std::move(listener), std::move(onward)});
}

void Middle::accept(const Door& door) {
  for (;;) {
    Fd dialler(::accept4(door.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!dialler) return;
    auto pipe = std::make_unique<Pipe>();
    pipe->dialler = std::move(dialler);
    pipe->acceptor = door.onward();
    if (!pipe->acceptor) continue;  // who dialled sees the end of the connection
    pipe->first = connections_++ == 0;
    pipe->plan = plan_;
    if (!pipe->first && !plan_.always) pipe->plan.trick = Trick::none;
    pipes_.push_back(std::move(pipe));
  }
}

// True: bytes or an end came.
bool Middle::relay(Pipe& pipe) {
  bool any = false;
  for (const bool toAcceptor : {true, false}) {
    if (pipe.over || pipe.held[toAcceptor]) continue;
    Bytes bytes(4096);
    const int from = toAcceptor ? pipe.dialler.get() : pipe.acceptor.get();
    const ssize_t got = ::recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) continue;
    any = true;
    if (got <= 0) {
      pipe.over = true;
      continue;
    }
    bytes.resize(static_cast<size_t>(got));
    if (pipe.first) heard_[toAcceptor].insert(heard_[toAcceptor].end(), bytes.begin(), bytes.end());
    pass(pipe, toAcceptor, std::move(bytes));
  }
  return any;
}

void Middle::pass(Pipe& pipe, bool toAcceptor, Bytes bytes) {
  const Plan& plan = pipe.plan;
  const size_t before = pipe.passed[toAcceptor];
  pipe.passed[toAcceptor] += bytes.size();
  const bool here = plan.trick != Trick::none && plan.toAcceptor == toAcceptor && plan.at >= before &&
                    plan.at < before + bytes.size();
  if (here) {
    played_ = true;
    const size_t at = plan.at - before;
    const auto place = bytes.begin() + static_cast<ptrdiff_t>(at);
    if (plan.trick == Trick::flip) bytes[at] ^= static_cast<std::byte>(1u << (plan.at % 8));
    if (plan.trick == Trick::cut || plan.trick == Trick::hold) bytes.resize(at);
    if (plan.trick == Trick::repeat) {
      const Bytes again(bytes.begin(), place + 1);
      bytes.insert(place + 1, again.begin(), again.end());
    }
    if (plan.trick == Trick::swap && at + 1 < bytes.size()) std::rotate(bytes.begin(), place, bytes.end());
    if (plan.trick == Trick::insert) bytes.insert(place, 3, std::byte{0x41});
    if (plan.trick == Trick::hold) pipe.held[toAcceptor] = true;
  }
  const bool sent = sendWhole(toAcceptor ? pipe.acceptor.get() : pipe.dialler.get(), bytes);
  if (!sent || (here && plan.trick == Trick::cut)) pipe.over = true;
}

Fd dialPast(uint16_t port, uint8_t from) {
  const bool before = his;
  his = true;
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in ours = loopback(0, from), theirs = loopback(port);
  (void)::bind(fd.get(), reinterpret_cast<const sockaddr*>(&ours), sizeof ours);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&theirs), sizeof theirs) != 0) fd.reset();
  his = before;
  return fd;
}

}  // namespace weft::hostile

extern "C" {

int __real_connect(int fd, const sockaddr* to, socklen_t length);

int __wrap_connect(int fd, const sockaddr* to, socklen_t length) {
  weft::hostile::Middle* middle = weft::hostile::Middle::present();
  if (!middle || weft::hostile::Middle::isHis() || to->sa_family != AF_INET)
    return __real_connect(fd, to, length);
  sockaddr_in address = *reinterpret_cast<const sockaddr_in*>(to);
  const bool isLoopback = ntohl(address.sin_addr.s_addr) >> 24 == 127;
  if (!isLoopback) return __real_connect(fd, to, length);
  const uint16_t port = middle->portFor(ntohs(address.sin_port));
  if (port != 0) address.sin_port = htons(port);
  return __real_connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}
}
