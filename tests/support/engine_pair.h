// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "providers/loop/transport.h"
#include "src/core/recv_comm.h"
#include "src/core/runtime.h"
#include "src/core/send_comm.h"
#include "tests/support/fake_hub.h"

// Two engines of two imagined processes, on any in-process transport, joined by control messages that travel
// only when the test lets them. A single thread, a fake clock: every interleaving can be made on purpose.
namespace weft::test {

class World;

// The other process as one side sees it: messages go into the World's queue.
class FakePeer final : public control::Peer {
 public:
  FakePeer(World& world, int receiver, std::string name, control::Fingerprint fingerprint)
      : world_(world), receiver_(receiver), name_(std::move(name)), fingerprint_(std::move(fingerprint)) {
    static uint8_t processes[2] = {};
    if (++processes[0] == 0) processes[1]++;
    incarnation_[0] = std::byte{processes[0]};
    incarnation_[1] = std::byte{processes[1]};
  }
  const control::Incarnation& incarnation() const override { return incarnation_; }
  std::string name() const override { return name_; }
  bool alive() const override { return living; }
  Error reason() const override { return Error(Code::remote, "watching peers", "it died"); }
  bool answers() const override { return answering; }
  bool settled() const override { return answering && !settling; }
  void seenOnFabric(TimePoint when) override { lastSeenOnFabric = when; }
  void send(uint16_t type, Bytes body) override;
  const control::Fingerprint& fingerprint() const override { return fingerprint_; }

  bool answering = true;
  bool settling = false;
  bool living = true;
  TimePoint lastSeenOnFabric{};

 private:
  World& world_;
  int receiver_;
  std::string name_;
  control::Incarnation incarnation_{};
  const control::Fingerprint fingerprint_;
};

struct Side {
  std::shared_ptr<core::Net> net;
  core::ContextRef context;
  int device = 0;
  std::shared_ptr<FakeHub> hub;
  std::shared_ptr<core::Runtime> runtime;
  std::shared_ptr<core::Engine> engine;
  std::shared_ptr<FakePeer> other;  // how this side sees the other one
};

struct Connection {
  std::unique_ptr<core::SendCommImpl> send;  // on the sending side
  std::unique_ptr<core::RecvCommImpl> recv;
};

Config configOfTests();  // closing waits for messages that nobody delivers meanwhile: 20 ms of it

// A clock whose sleepers may let the test act: what closing waits for is then done by the test's one thread.
class WorldClock final : public FakeClock {
 public:
  void sleep(Nanoseconds time) const override {
    if (!whileSleeping) return FakeClock::sleep(time);
    advance(time);
    whileSleeping();
  }
  void yield() const override {
    yields++;
    FakeClock::yield();
  }
  std::function<void()> whileSleeping;  // called outside of the engines
  mutable std::atomic<int> yields{0};   // of threads that wait for their turn in an engine
};

struct WorldOptions {
  Config config = configOfTests();
  std::shared_ptr<Transport> transports[2];      // of the two sides; loop with friendly options when null
  std::shared_ptr<Transport> locals[2];          // for peers on the same host; none when null
  std::shared_ptr<core::ProfilerSink> profiler;  // of both sides; null: none
  int rails[2] = {1, 1};                         // how many of the transport's devices each side's device has
  std::string domain;                            // of both hosts, behind their names in the peers' names
  std::string checksumOf[2];                     // what each side says it checks; empty: as its settings
};

class World {
 public:
  explicit World(WorldOptions options);
  ~World();

  Side& side(int i) { return sides_[i]; }
  WorldClock& clock() { return clock_; }
  // A connection whose sender is on side `from`.
  Connection connect(int from);

  void deliverMessages();    // all that are queued, and those they cause
  void progress(int side);   // one poll pass there
  void pump(int times = 1);  // messages and a pass on both sides; the clock moves a microsecond a pass
  void watch(int side);

  struct Message {
    int receiver;
    uint16_t type;
    Bytes body;
  };
  std::deque<Message> messages;
  bool dropMessages = false;

 private:
  void make(int side);

  WorldClock clock_;
  WorldOptions options_;
  std::shared_ptr<HubExchange> exchange_ = std::make_shared<HubExchange>();
  Side sides_[2];
};

// Memory of a test, registered on one comm.
class Buffer {
 public:
  Buffer(core::CommBase& comm, size_t bytes);
  ~Buffer();
  std::byte* data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  core::MemoryHandle* handle() const { return handle_; }
  void release();  // deregisters now

 private:
  core::CommBase* comm_;
  std::vector<std::byte> bytes_;
  core::MemoryHandle* handle_ = nullptr;
};

// Every byte follows from the message's identity and its place, so that any mix-up shows.
std::byte patternByte(uint64_t message, size_t offset);
void fillPattern(std::byte* data, size_t bytes, uint64_t message);
size_t firstMismatch(const std::byte* data, size_t bytes, uint64_t message);  // `bytes` when all fit
// Sends a message over a connection and verifies it; `pass` lets both ends move, so often at most.
void exchange(World& world, Connection& link, size_t bytes, uint64_t message, int passes,
              const std::function<void()>& pass);

}  // namespace weft::test
