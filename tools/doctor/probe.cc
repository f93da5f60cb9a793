// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/doctor/probe.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include "src/base/advice.h"
#include "src/base/process.h"

namespace weft::doctor {

namespace {

constexpr const char* kPath = "path";
constexpr size_t kLetterBytes = size_t{64} << 10;
constexpr std::chrono::seconds kGuestPatience{10};
constexpr uint16_t kNobodyListens = 33434;  // where traceroute begins

Deadline within(double seconds) {
  const Clock& clock = Clock::system();
  return {clock,
          clock.now() + std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(seconds))};
}

// True once it may be read or written, or has an error.
bool awaitEvent(int fd, short events, const Deadline& deadline) {
  while (!deadline.isOver()) {
    pollfd one{fd, events, 0};
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline.at - deadline.clock.now()).count();
    if (::poll(&one, 1, static_cast<int>(std::clamp<int64_t>(left, 1, 1000))) > 0) return true;
  }
  return false;
}

Reach reachOf(int error) {
  switch (error) {
    case 0:
      return Reach::open;
    case ECONNREFUSED:
      return Reach::refused;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EACCES:
    case EPERM:
      return Reach::noWay;
    case ETIMEDOUT:
      return Reach::silent;
    default:
      return Reach::failed;
  }
}

int routeSize(int fd, int family) {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  const bool six = family == AF_INET6;
  if (::getsockopt(fd, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU : IP_MTU, &bytes, &length) != 0)
    return 0;
  return bytes;
}

// A datagram goes out, and the result says whether the host has said that nobody listens: 0, or EMSGSIZE, or
// ETIMEDOUT.
int letterReturns(int fd, size_t bytes, const Deadline& deadline) {
  const std::vector<std::byte> letter(bytes);
  for (int tries = 0; tries < 3; tries++) {
    if (::send(fd, letter.data(), letter.size(), MSG_NOSIGNAL) < 0 && errno != ECONNREFUSED) return errno;
    const Deadline part{deadline.clock,
                        std::min(deadline.at, deadline.clock.now() + std::chrono::milliseconds(700))};
    if (!awaitEvent(fd, POLLIN, part)) continue;
    const int error = connectError(fd);
    if (error == ECONNREFUSED) return 0;
    if (error != 0) return error;
  }
  return ETIMEDOUT;
}

Finding unreached(const std::string& host, const SocketAddress& at, const Dialled& got) {
  const std::string what = fmt::format("{} ({})", host, at.text());
  switch (got.reach) {
    case Reach::silent:
      return {Severity::error, kPath, what,
              "no answer: a firewall drops what goes to that port, or the host is down",
              byRoot(Cure::letPortIn, {std::to_string(at.port()), host})};
    case Reach::noWay:
      return {Severity::error, kPath, what, errnoWords(got.error), byHand("ip route get " + at.ipText())};
    default:
      return {
          Severity::error, kPath, what, got.error != 0 ? errnoWords(got.error) : "the connection failed", {}};
  }
}

}  // namespace

Dialled dial(const SocketAddress& to, const Deadline& deadline) {
  auto fd = startConnecting(to);
  if (!fd) return {reachOf(fd.error().errnum()), fd.error().errnum()};
  if (!awaitEvent(fd->get(), POLLOUT, deadline)) return {Reach::silent, ETIMEDOUT};
  const int error = connectError(fd->get());
  return {reachOf(error), error};
}

PathSize probePath(const SocketAddress& to, const Deadline& deadline) {
  using Answer = PathSize::Answer;
  PathSize found;
  const bool six = to.family() == AF_INET6;
  const Fd fd(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int whole = six ? IPV6_PMTUDISC_DO : IP_PMTUDISC_DO;
  const SocketAddress at = to.withPort(kNobodyListens);
  if (!fd || ::connect(fd.get(), at.raw(), at.length) != 0) return found;
  (void)::setsockopt(fd.get(), six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER,
                     &whole, sizeof whole);
  constexpr size_t kSmall = 32;
  const int heads = six ? 48 : 28;
  found.route = routeSize(fd.get(), to.family());
  if (const int error = letterReturns(fd.get(), kSmall, deadline); error != 0) {
    found.answer = error == ETIMEDOUT ? Answer::silent : Answer::failed;
    return found;
  }
  constexpr int kMost = 65000;  // of a loopback
  const int error =
      letterReturns(fd.get(), static_cast<size_t>(std::min(found.route, kMost) - heads), deadline);
  found.path = routeSize(fd.get(), to.family());
  found.answer = error == 0           ? Answer::whole
                 : error == EMSGSIZE  ? Answer::smaller
                 : error == ETIMEDOUT ? Answer::swallowed
                                      : Answer::failed;
  return found;
}

Result<std::unique_ptr<Responder>> Responder::start(const PortRange& ports) {
  auto responder = std::make_unique<Responder>(Key{});
  auto listening = listenOn(SocketAddress::any(AF_INET6), "listening for probes", Hears::bothFamilies, ports);
  if (!listening)
    listening = listenOn(SocketAddress::any(AF_INET), "listening for probes", Hears::itsFamily, ports);
  TRY(responder->listener_, std::move(listening));
  responder->port_ = localAddress(responder->listener_.get()).port();
  responder->stop_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  TRY(responder->thread_, startThread("weft-probe", [self = responder.get()] { self->serve(); }));
  return responder;
}

Responder::~Responder() {
  if (!thread_.joinable()) return;
  (void)::eventfd_write(stop_.get(), 1);
  thread_.join();
}

// Guests are served in turn: a probe is short, and a silent guest is given up.
void Responder::serve() {
  const std::array<std::byte, 1> answer{};
  while (true) {
    std::array<pollfd, 2> both{pollfd{listener_.get(), POLLIN, 0}, pollfd{stop_.get(), POLLIN, 0}};
    if (::poll(both.data(), both.size(), -1) < 0 && errno != EINTR) return;
    if (both[1].revents != 0) return;
    auto guest = acceptOne(listener_.get());
    if (!guest) continue;
    const Deadline deadline = within(std::chrono::duration<double>(kGuestPatience).count());
    ExactReader reader;
    reader.expect(kLetterBytes);
    if (receiveAll(guest->get(), reader, deadline)) (void)sendAll(guest->get(), answer, deadline);
  }
}

Finding probeResponder(const std::string& host, const SocketAddress& at, double seconds) {
  const Deadline deadline = within(seconds);
  auto fd = startConnecting(at);
  if (!fd) return unreached(host, at, {reachOf(fd.error().errnum()), fd.error().errnum()});
  if (!awaitEvent(fd->get(), POLLOUT, deadline)) return unreached(host, at, {Reach::silent, ETIMEDOUT});
  if (const int error = connectError(fd->get()); error != 0)
    return unreached(host, at, {reachOf(error), error});
  const std::string what = fmt::format("{} ({})", host, at.text());
  const int route = routeSize(fd->get(), at.family());
  const std::vector<std::byte> letter(kLetterBytes);
  ExactReader reader;
  reader.expect(1);
  const Deadline again = within(seconds);
  if (!sendAll(fd->get(), letter, again) || !receiveAll(fd->get(), reader, again))
    return {Severity::error, kPath, what,
            fmt::format("small packets pass and large ones do not: the route says {} bytes, and something on "
                        "the path carries less",
                        route),
            byRoot(Cure::lengthOfHosts, {std::to_string(route)})};
  return {Severity::fine,
          kPath,
          what,
          fmt::format("reached, with packets of up to {} bytes", routeSize(fd->get(), at.family())),
          {}};
}

namespace {

Finding pathFinding(const std::string& what, const PathSize& size) {
  switch (size.answer) {
    case PathSize::Answer::whole:
      return {Severity::fine, kPath, what, fmt::format("packets of {} bytes arrive", size.route), {}};
    case PathSize::Answer::smaller:
      return {Severity::warning, kPath, what,
              fmt::format("the interface sends {} bytes, and the path carries {}", size.route, size.path),
              byRoot(Cure::lengthOfPath, {std::to_string(size.path), std::to_string(size.route)})};
    case PathSize::Answer::swallowed:
      return {Severity::error, kPath, what,
              fmt::format("small packets are answered, those of {} bytes are swallowed without a word",
                          size.route),
              byRoot(Cure::lengthOfHosts, {std::to_string(size.route)})};
    default:
      return {Severity::unknown,
              kPath,
              what,
              "the length of packets could not be probed: it does not answer datagrams",
              {}};
  }
}

}  // namespace

Findings probeHost(const std::string& host, const PortRange& ports, double seconds) {
  const uint16_t port = ports.any() ? 20000 : ports.first;
  const auto addresses =
      resolve(fmt::format("{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", port),
              Resolving::toDial);
  if (!addresses)
    return {
        {Severity::error, kPath, host, addresses.error().message(), byHand("its name in DNS or /etc/hosts")}};
  Findings found;
  for (const SocketAddress& at : *addresses) {
    const std::string what = fmt::format("{} ({})", host, at.ipText());
    for (const uint16_t each : {port, ports.any() ? uint16_t{61000} : ports.last}) {
      const Dialled got = dial(at.withPort(each), within(seconds));
      if (got.reach != Reach::open && got.reach != Reach::refused)
        found.push_back(unreached(host, at.withPort(each), got));
      else
        found.push_back({Severity::fine,
                         kPath,
                         fmt::format("{} ({})", host, at.withPort(each).text()),
                         "a firewall lets this port through",
                         {}});
    }
    found.push_back(pathFinding(what, probePath(at, within(seconds))));
  }
  return found;
}

}  // namespace weft::doctor
