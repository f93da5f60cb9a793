// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/support/engine_pair.h"

#include <chrono>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/patience.h"

namespace weft::test {

using core::Engine;
using core::EngineEntry;

void FakePeer::send(uint16_t type, Bytes body) {
  if (!world_.dropMessages) world_.messages.push_back({receiver_, type, std::move(body)});
}

Config configOfTests() {
  Config config;
  config.closeTimeout = Milliseconds(20);
  return config;
}

World::World(WorldOptions options) : options_(std::move(options)) {
  for (int i = 0; i < 2; i++) make(i);
}

World::~World() = default;

void World::make(int i) {
  if (!options_.transports[i]) {
    loop::LoopOptions friendly;
    friendly.rails = options_.rails[i];
    options_.transports[i] = loop::makeTransport(friendly);
  }
  Side& side = sides_[i];
  const std::string name =
      i == 0 ? "node1" + options_.domain + " pid 1001" : "node0" + options_.domain + " pid 1000";
  const std::string& theirs = options_.checksumOf[1 - i];
  side.other = std::make_shared<FakePeer>(
      *this, 1 - i, name,
      control::Fingerprint{
          {core::kCheckingField, theirs.empty() ? options_.config.checksum : theirs, false}});
  core::NetOptions of;
  of.config = options_.config;
  of.transport = options_.transports[i];
  of.local = options_.locals[i];
  of.clock = &clock_;
  of.maxMembers = options_.rails[i];
  of.makeHub = [this, &side](control::HubOptions hub) -> Result<std::shared_ptr<control::Hub>> {
    side.hub = std::make_shared<FakeHub>(exchange_, side.other, std::move(hub));
    return std::shared_ptr<control::Hub>(side.hub);
  };
  auto net = core::Net::create(std::move(of));
  REQUIRE(net);
  side.net = *net;
  if (options_.rails[i] > 1) {
    std::vector<int> rails(static_cast<size_t>(options_.rails[i]));
    std::iota(rails.begin(), rails.end(), 0);
    auto merged = side.net->makeVirtual(rails);
    REQUIRE(merged);
    side.device = *merged;
  }
  core::ContextOptions context;
  context.profiler = options_.profiler;
  side.context = side.net->openContext(std::move(context));
  auto runtime = side.net->runtime();
  REQUIRE(runtime);
  side.runtime = *runtime;
  auto engine = side.runtime->engineFor(side.context, side.device);
  REQUIRE(engine);
  side.engine = *engine;
}

Connection World::connect(int from) {
  Side& sender = sides_[from];
  Side& receiver = sides_[1 - from];
  std::array<std::byte, control::kHandleBytes> handle{};
  auto listener = receiver.net->listen(receiver.context, receiver.device, handle);
  REQUIRE(listener);
  std::unique_ptr<core::SendComm> send;
  std::unique_ptr<core::RecvComm> recv;
  const auto step = [&] {
    if (!send) {
      auto stepped = sender.net->connect(sender.context, sender.device, handle);
      REQUIRE(stepped);
      send = std::move(*stepped);
    }
    if (!recv) {
      auto stepped = receiver.net->accept(**listener);
      REQUIRE(stepped);
      recv = std::move(*stepped);
    }
    pump();
    return send && recv;
  };
  bool joined = false;
  for (int i = 0; i < 1000 && !joined; i++) joined = step();
  // Real cards connect on a thread of their own.
  for (int ms = 0; ms < 5000 * patience() && !joined; ms++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    joined = step();
  }
  REQUIRE(joined);
  Connection made;
  made.send.reset(static_cast<core::SendCommImpl*>(send.release()));
  made.recv.reset(static_cast<core::RecvCommImpl*>(recv.release()));
  return made;
}

void World::deliverMessages() {
  while (!messages.empty()) {
    const Message message = std::move(messages.front());
    messages.pop_front();
    Side& side = sides_[message.receiver];
    side.hub->handler().onMessage(side.other, message.type, message.body);
  }
}

void World::progress(int i) {
  clock_.advance(std::chrono::microseconds(1));
  EngineEntry in(*sides_[i].engine, EngineEntry::wait);
  sides_[i].engine->progress();
}

void World::pump(int times) {
  for (int i = 0; i < times; i++) {
    deliverMessages();
    progress(0);
    deliverMessages();
    progress(1);
  }
  deliverMessages();
}

void World::watch(int i) {
  EngineEntry in(*sides_[i].engine, EngineEntry::wait);
  sides_[i].engine->progress();
  sides_[i].engine->watch();
}

Buffer::Buffer(core::CommBase& comm, size_t bytes) : comm_(&comm), bytes_(bytes) {
  MemoryDesc desc;
  desc.address = bytes_.data();
  desc.length = bytes_.size();
  auto handle = comm.addHandle(desc, PeerAccess::readAndWrite);
  REQUIRE(handle);
  handle_ = *handle;
}

Buffer::~Buffer() {
  release();
}

void Buffer::release() {
  if (handle_) (void)comm_->removeHandle(handle_);
  handle_ = nullptr;
}

std::byte patternByte(uint64_t message, size_t offset) {
  return std::byte((message * 131 + offset * 7 + (offset >> 8) * 13 + (offset >> 16)) & 0xff);
}

void fillPattern(std::byte* data, size_t bytes, uint64_t message) {
  for (size_t i = 0; i < bytes; i++) data[i] = patternByte(message, i);
}

size_t firstMismatch(const std::byte* data, size_t bytes, uint64_t message) {
  size_t i = 0;
  while (i < bytes && data[i] == patternByte(message, i)) i++;
  return i;
}

void exchange(World& world, Connection& link, size_t bytes, uint64_t message, int passes,
              const std::function<void()>& pass) {
  Buffer from(*link.send, bytes), to(*link.recv, bytes);
  world.pump();
  fillPattern(from.data(), bytes, message);
  const core::ReceiveSpec spec{to.data(), bytes, 1, to.handle(), nullptr};
  core::Request* receiving = link.recv->irecv(std::span(&spec, 1)).request;
  REQUIRE(receiving);
  core::Request* sending = nullptr;
  bool sent = false, received = false;
  for (int i = 0; i < passes && !(sent && received); i++) {
    if (!sending) sending = link.send->isend(from.data(), bytes, 1, from.handle(), nullptr).request;
    if (sending && !sent) sent = link.send->test(sending, nullptr).done;
    if (!received) received = link.recv->test(receiving, nullptr).done;
    pass();
  }
  REQUIRE(sent);
  REQUIRE(received);
  CHECK(firstMismatch(to.data(), bytes, message) == bytes);
}

}  // namespace weft::test
