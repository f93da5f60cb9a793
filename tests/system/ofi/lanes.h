// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "providers/ofi/address.h"
#include "providers/ofi/transport.h"
#include "src/base/fd.h"
#include "tests/support/catch.h"

// Helpers for tests that run over real libfabric: a Queue with memory and one lane, and a loop that polls
// several of them until something holds or five seconds are over. One thread.
namespace weft::test {

// The loopback interface: every machine has it, and nobody takes it away while a test runs.
inline Config ofiConfig() {
  Config config;
  config.socketIfname = "=lo";
  config.closeTimeout = Milliseconds(300);
  config.connectTimeout = Milliseconds(3000);
  return config;
}

struct OfiSide {
  explicit OfiSide(const std::string& provider, size_t bytes = 1 << 20, const Config& config = ofiConfig())
      : buffer(bytes) {
    transport = REQUIRED(ofi::makeTransport(provider, config));
    const auto infos = REQUIRED(transport->discover());
    REQUIRE_FALSE(infos.empty());
    device = REQUIRED(transport->open(infos.front()));
    open();
  }
  OfiSide(std::shared_ptr<Device> shared, size_t bytes) : device(std::move(shared)), buffer(bytes) { open(); }

  template <class T>
  static T REQUIRED(Result<T> result) {
    if (!result) FAIL(result.error().message());
    return result.take();
  }

  void open() {
    MemoryDesc desc;
    desc.address = buffer.data();
    desc.length = buffer.size();
    memory = REQUIRED(device->registerMemory(desc));
    queue = REQUIRED(device->openQueue({}));
    lane = REQUIRED(queue->openEndpoint());
  }
  void connectTo(const OfiSide& peer) {
    const Status started = lane->connect(peer.lane->address());
    REQUIRE(started);
    remote = REQUIRED(lane->import(peer.memory->blob()));
  }
  // One poll; what it returned is kept.
  void poll() {
    Completion found[16];
    const size_t n = queue->poll(found);
    for (size_t i = 0; i < n; i++) {
      if (!found[i].ok) words.push_back(queue->explain(found[i]));
      seen.push_back(found[i]);
    }
  }
  size_t count(CompletionKind kind, bool ok = true) const {
    size_t n = 0;
    for (const Completion& completion : seen) n += completion.kind == kind && completion.ok == ok;
    return n;
  }
  const Completion* first(CompletionKind kind) const {
    for (const Completion& completion : seen)
      if (completion.kind == kind) return &completion;
    return nullptr;
  }
  Work work(Opcode op, size_t offset, size_t length, uint64_t context) {
    Work made;
    made.op = op;
    made.local = buffer.data() + offset;
    made.length = length;
    made.memory = memory.get();
    made.remote = remote;
    made.remoteOffset = offset;
    made.context = context;
    return made;
  }
  bool post(const Work& one) { return lane->post(std::span(&one, 1)) == 1; }

  // Members in teardown order.
  std::unique_ptr<Transport> transport;
  std::shared_ptr<Device> device;
  std::vector<unsigned char> buffer;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Endpoint> lane;
  RemoteMemory remote;
  std::vector<Completion> seen;
  std::vector<std::string> words;
};

template <class Done>
bool pollUntil(std::vector<OfiSide*> sides, Done done,
               std::chrono::milliseconds limit = std::chrono::seconds(15)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    for (OfiSide* side : sides) side->poll();
  }
  return true;
}

inline bool connectBoth(OfiSide& a, OfiSide& b) {
  a.connectTo(b);
  b.connectTo(a);
  return pollUntil({&a, &b}, [&] {
    return a.count(CompletionKind::connected) == 1 && b.count(CompletionKind::connected) == 1;
  });
}

// Sockets of somebody who has no business there, connected to the ports of the side's lane in turn.
inline std::vector<Fd> connectStrangers(const OfiSide& side, size_t count) {
  const auto address = OfiSide::REQUIRED(ofi::decodeLaneAddress(side.lane->address()));
  std::vector<Fd> strangers;
  for (size_t i = 0; i < count; i++) {
    const Bytes& name = address.names[i % address.names.size()];
    sockaddr_in port{};
    REQUIRE(name.size() == sizeof port);
    std::memcpy(&port, name.data(), sizeof port);
    strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(strangers.back().get(), reinterpret_cast<const sockaddr*>(&port), sizeof port) == 0);
  }
  return strangers;
}

// The software providers that this machine's libfabric has: "net" in 1.x is "tcp" in 2.x.
inline std::vector<std::string> softwareProviders() {
  std::vector<std::string> found;
  for (const char* name : {"net", "tcp", "shm", "tcp;ofi_rxm"}) {
    auto transport = ofi::makeTransport(name, ofiConfig());
    if (!transport) continue;
    auto infos = (*transport)->discover();
    if (infos && !infos->empty()) found.emplace_back(name);
  }
  return found;
}

// Those that may serve both ends of one process: shm 2.x, which knows such peers by pointer, crashes.
inline std::vector<std::string> oneProcessProviders() {
  std::vector<std::string> found = softwareProviders();
  const auto transport = ofi::makeTransport("shm", ofiConfig());
  if (transport && (*transport)->version() >= "libfabric 2")
    found.erase(std::remove(found.begin(), found.end(), "shm"), found.end());
  return found;
}

// Runs the test case once for each; empty when there are no more.
inline std::string pick(const std::vector<std::string>& all) {
  REQUIRE_FALSE(all.empty());
  const size_t index = GENERATE(as<size_t>{}, 0, 1, 2, 3);
  return index < all.size() ? all[index] : std::string();
}

}  // namespace weft::test
