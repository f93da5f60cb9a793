// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "providers/ofi/address.h"
#include "src/base/fd.h"
#include "src/base/number.h"
#include "tests/support/catch.h"
#include "tests/system/ofi/lanes.h"

// A lane of several connections (WEFT_TCP_STREAMS), watched at its sockets.
using namespace weft;
using namespace weft::test;

namespace {

// libfabric's sockets: "net" in 1.x, "tcp" in 2.x; empty where it has none of them.
std::string sockets() {
  const auto found = softwareProviders();
  for (const char* name : {"tcp", "net"})
    if (std::find(found.begin(), found.end(), name) != found.end()) return name;
  return {};
}

Config withStreams(int count) {
  Config config = ofiConfig();
  config.tcpStreams = count;
  return config;
}

bool isNamed(const sockaddr_in& address, const Bytes& name) {
  return name.size() == sizeof address && std::memcmp(&address, name.data(), sizeof address) == 0;
}

// This process's end of the connections between any of `own` and any of `peers`, by number of the stream.
std::vector<std::vector<int>> connections(const OfiSide& own, const OfiSide& peer) {
  const auto mine = OfiSide::REQUIRED(ofi::decodeLaneAddress(own.lane->address()));
  const auto theirs = OfiSide::REQUIRED(ofi::decodeLaneAddress(peer.lane->address()));
  std::vector<std::vector<int>> found(std::min(mine.names.size(), theirs.names.size()));
  DIR* directory = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(directory)) {
    const int fd = parseNumber<int>(entry->d_name).value_or(-1);
    sockaddr_in local{}, remote{};
    socklen_t localSize = sizeof local, remoteSize = sizeof remote;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &localSize) != 0) continue;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&remote), &remoteSize) != 0) continue;
    for (size_t i = 0; i < found.size(); i++)  // one end listens, the other has a port that it was given
      if (isNamed(remote, theirs.names[i]) || isNamed(local, mine.names[i])) found[i].push_back(fd);
  }
  ::closedir(directory);
  return found;
}

uint64_t bytesSent(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  REQUIRE(::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
  return info.tcpi_bytes_sent;
}

uint64_t bytesSent(const std::vector<int>& sockets) {
  uint64_t sum = 0;
  for (const int fd : sockets) sum += bytesSent(fd);
  return sum;
}

void writeAll(OfiSide& from, OfiSide& to, size_t bytes, size_t count) {
  const size_t sent = from.count(CompletionKind::sent), notified = to.count(CompletionKind::notified);
  for (size_t i = 0; i < count; i++) {
    const Work work = from.work(Opcode::writeNotify, i * bytes, bytes, i);
    REQUIRE(pollUntil({&from, &to}, [&] { return from.post(work); }));
  }
  REQUIRE(pollUntil({&from, &to}, [&] {
    return from.count(CompletionKind::sent) == sent + count &&
           to.count(CompletionKind::notified) == notified + count;
  }));
}

}  // namespace

TEST_CASE("large writes take turns over the streams, small ones share one") {
  const std::string provider = sockets();
  if (provider.empty()) return;
  constexpr size_t kLarge = 64 << 10, kEach = 4;
  const size_t streams = GENERATE(as<size_t>{}, 1, 2, 4);
  OfiSide a(provider, 1 << 20, withStreams(static_cast<int>(streams)));
  OfiSide b(provider, 1 << 20, withStreams(static_cast<int>(streams)));
  REQUIRE(connectBoth(a, b));
  const auto sockets = connections(a, b);
  REQUIRE(sockets.size() == streams);
  std::vector<uint64_t> before;
  for (const auto& stream : sockets) before.push_back(bytesSent(stream));
  writeAll(a, b, 64, 10);
  for (size_t i = 1; i < streams; i++) CHECK(bytesSent(sockets[i]) == before[i]);
  CHECK(bytesSent(sockets[0]) >= before[0] + 640);
  for (size_t i = 0; i < streams; i++) before[i] = bytesSent(sockets[i]);
  writeAll(a, b, kLarge, kEach * streams);
  for (size_t i = 0; i < streams; i++) {
    CHECK(bytesSent(sockets[i]) >= before[i] + kEach * kLarge);
    CHECK(bytesSent(sockets[i]) < before[i] + (kEach + 1) * kLarge);
  }
}

TEST_CASE("of two ends the one with fewer streams decides") {
  const std::string provider = sockets();
  if (provider.empty()) return;
  OfiSide a(provider, 1 << 20, withStreams(64)), b(provider, 1 << 20, withStreams(2));
  REQUIRE(OfiSide::REQUIRED(ofi::decodeLaneAddress(a.lane->address())).names.size() ==
          ofi::LaneAddress::kMostNames);
  REQUIRE(connectBoth(a, b));
  std::fill(a.buffer.begin(), a.buffer.end(), static_cast<unsigned char>(3));
  writeAll(a, b, 64 << 10, 8);
  CHECK(std::count(b.buffer.begin(), b.buffer.begin() + (512 << 10), 3) == 512 << 10);
  writeAll(b, a, 64 << 10, 16);
  CHECK(a.buffer == b.buffer);
}

TEST_CASE("a lane whose streams are not all there any more is broken, and what was written is over") {
  const std::string provider = sockets();
  if (provider.empty()) return;
  const size_t victim = GENERATE(as<size_t>{}, 0, 1, 2);
  OfiSide a(provider, 1 << 20, withStreams(3)), b(provider, 1 << 20, withStreams(3));
  REQUIRE(connectBoth(a, b));
  const auto sockets = connections(a, b);
  for (const int fd : sockets[victim]) REQUIRE(::shutdown(fd, SHUT_RDWR) == 0);
  size_t posted = 0;
  const auto died = [&] {
    return a.count(CompletionKind::broken, false) + a.count(CompletionKind::sent, false) > 0;
  };
  REQUIRE(pollUntil({&a, &b}, [&] {
    posted += a.post(a.work(Opcode::writeNotify, 0, 64 << 10, posted));
    return died();
  }));
  CHECK_FALSE(a.post(a.work(Opcode::writeNotify, 0, 64 << 10, posted)));
  a.lane->retire();
  REQUIRE(pollUntil({&a, &b}, [&] { return a.count(CompletionKind::retired) == 1; }));
  CHECK(a.count(CompletionKind::sent) + a.count(CompletionKind::sent, false) == posted);
  // What the lane's other streams carried has landed, so the buffer may be used again.
  const size_t notified = b.count(CompletionKind::notified);
  (void)pollUntil(
      {&a, &b}, [] { return false; }, std::chrono::milliseconds(50));
  CHECK(b.count(CompletionKind::notified) == notified);
}

TEST_CASE("a lost stream does not vouch for what is still in the others") {
  const std::string provider = sockets();
  if (provider.empty()) return;
  OfiSide a(provider, 1 << 20, withStreams(3)), b(provider, 1 << 20, withStreams(3));
  REQUIRE(connectBoth(a, b));
  for (size_t i = 0; i < 6; i++) REQUIRE(a.post(a.work(Opcode::writeNotify, 0, 64 << 10, i)));
  const auto sockets = connections(a, b);
  for (const int fd : sockets[1]) REQUIRE(::shutdown(fd, SHUT_RDWR) == 0);
  REQUIRE(pollUntil({&a}, [&] {  // b, which does not poll, has read nothing
    return a.count(CompletionKind::broken, false) + a.count(CompletionKind::sent, false) > 0 ||
           !a.post(a.work(Opcode::writeNotify, 0, 64 << 10, 9));
  }));
  a.lane->retire();
  REQUIRE(pollUntil({&a}, [&] { return a.first(CompletionKind::retired) != nullptr; }));
  CHECK_FALSE(a.first(CompletionKind::retired)->ok);
}

TEST_CASE("a stranger who was let in and said nothing does not outlive the lane") {
  const std::string provider = sockets();
  if (provider.empty()) return;
  OfiSide a(provider, 1 << 16), b(provider, 1 << 16);
  REQUIRE(connectBoth(a, b));
  std::vector<Fd> strangers = connectStrangers(a, 160);  // more than libfabric looks at in one go
  for (int i = 0; i < 1000; i++) a.poll();
  if (GENERATE(false, true)) {
    a.lane->retire();
    REQUIRE(pollUntil({&a, &b}, [&] { return a.count(CompletionKind::retired) == 1; }));
  }
  a.lane.reset();
  for (const Fd& stranger : strangers) (void)::send(stranger.get(), "hello", 5, MSG_NOSIGNAL);
  for (int i = 0; i < 1000; i++) a.poll();
  strangers.clear();
  for (int i = 0; i < 1000; i++) a.poll();
}
