// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/support/engine_pair.h"

#include <chrono>
#include <cstdlib>
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
  for (int i = 0; i < 2; i++) {
    if (!options_.transports[i]) {
      loop::LoopOptions friendly;
      friendly.rails = options_.rails[i];
      options_.transports[i] = loop::makeTransport(friendly);
    }
    Side& side = sides_[i];
    auto net = core::Net::create({options_.config, options_.transports[i], &clock_});
    REQUIRE(net);
    side.net = *net;
    side.context = side.net->openContext({});
    core::EngineOptions engine;
    engine.config = &side.net->config();
    engine.clock = &clock_;
    engine.deviceName = "loop";
    for (int rail = 0; rail < options_.rails[i]; rail++) {
      auto device = options_.transports[i]->open(side.net->rail(rail));
      REQUIRE(device);
      engine.devices.push_back(*device);
    }
    engine.regions = std::make_shared<mem::RegionCache>(engine.devices);
    auto made = Engine::create(std::move(engine));
    REQUIRE(made);
    side.engine = *made;
    side.other = std::make_shared<FakePeer>(*this, 1 - i, i == 0 ? "node1 pid 1001" : "node0 pid 1000");
  }
}

World::~World() = default;

// What Connector and ListenCommImpl do, step by step and without a hub.
Connection World::connect(int from) {
  Side& sender = sides_[from];
  Side& receiver = sides_[1 - from];
  Connection made;
  core::ConnectReply reply;
  {
    EngineEntry in(*receiver.engine, EngineEntry::wait);
    auto peering = receiver.engine->peering(receiver.other, sender.engine->id(),
                                            static_cast<uint16_t>(sender.engine->railCount()));
    REQUIRE(peering);
    auto comm = core::RecvCommImpl::create({nullptr, receiver.context, receiver.engine, *peering, 0}, 0);
    REQUIRE(comm);
    made.recv = std::move(*comm);
    reply.comm = made.recv->number();
    reply.half = (*peering)->half();
  }
  {
    EngineEntry in(*sender.engine, EngineEntry::wait);
    auto peering = sender.engine->peering(sender.other, reply.half.engine, reply.half.rails);
    REQUIRE(peering);
    REQUIRE((*peering)->adopt(reply.half));
    auto comm = core::SendCommImpl::create({nullptr, sender.context, sender.engine, *peering, 0}, reply.comm);
    REQUIRE(comm);
    made.send = std::move(*comm);
    core::OpenMessage open;
    open.comm = reply.comm;
    open.sender = made.send->number();
    open.half = (*peering)->half();
    open.ringMemory = (*peering)->noticeOf(*made.send->ring().region(), 0);
    open.ringOffset = made.send->ring().offset();
    (*peering)->tell(core::MessageType::open, open);
  }
  const auto joined = [&] {
    return made.recv->opened() && made.recv->peering().ready() && made.send->peering().ready();
  };
  for (int i = 0; i < 1000 && !joined(); i++) pump();
  // Real cards connect on a thread of their own.
  for (int ms = 0; ms < 5000 * patience() && !joined(); ms++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pump();
  }
  REQUIRE(made.send->peering().ready());
  REQUIRE(made.recv->peering().ready());
  return made;
}

void World::deliverMessages() {
  while (!messages.empty()) {
    Message message = std::move(messages.front());
    messages.pop_front();
    ByteReader in(message.body);
    const core::EngineHeader header = core::EngineHeader::decode(&in);
    Side& side = sides_[message.receiver];
    if (header.to != side.engine->id()) continue;
    Engine::Mail mail;
    mail.peer = side.other;
    mail.type = static_cast<core::MessageType>(message.type);
    mail.fromEngine = header.from;
    mail.life = header.life;
    const auto rest = in.raw(in.left());
    mail.body.assign(rest.begin(), rest.end());
    side.engine->deliver(std::move(mail));
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
  auto handle = comm.addHandle(desc);
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

}  // namespace weft::test
