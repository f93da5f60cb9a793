// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/coll/ranks.h"

#include <cstring>
#include <thread>

#include "providers/loop/transport.h"
#include "src/coll/kernels.h"
#include "tests/support/catch.h"

namespace weft::test {

Ranks::Ranks(int count, Config config, const MakeTransport& makeTransport) {
  for (int rank = 0; rank < count; rank++) {
    core::NetOptions options;
    options.config = config;
    options.transport = makeTransport ? makeTransport(rank) : loop::makeTransport({});
    auto net = core::Net::create(std::move(options));
    REQUIRE(net);
    core::ContextOptions context;
    context.perCommunicator = true;
    context.communicator = 7;
    Node node;
    node.context = (*net)->openContext(std::move(context));
    auto listener = (*net)->listen(node.context, 0, node.handle);
    REQUIRE(listener);
    node.listener = listener.take();
    nodes_.push_back(std::move(node));
  }
  groups_.resize(nodes_.size());
}

Ranks::~Ranks() {
  each([&](int rank) { drop(rank); });
}

void Ranks::each(const std::function<void(int rank)>& work) const {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count(); rank++) threads.emplace_back(work, rank);
  for (std::thread& thread : threads) thread.join();
}

coll::MeshOptions Ranks::meshOptions(int rank, bool full) const {
  coll::MeshOptions options;
  options.context = context(rank);
  options.listener = nodes_[static_cast<size_t>(rank)].listener.get();
  options.rank = rank;
  options.full = full;
  for (const Node& node : nodes_) options.handles.push_back(node.handle);
  return options;
}

void Ranks::form(const Make& make, bool full) {
  std::vector<std::string> failures(nodes_.size());
  each([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    auto mesh = coll::Mesh::open(meshOptions(rank, full));
    if (mesh)
      groups_[r] = make(rank, mesh.take());
    else
      failures[r] = mesh.error().message();
  });
  for (const std::string& failure : failures) REQUIRE(failure == "");
  for (const auto& group : groups_) REQUIRE(group);
}

Vectors::Vectors(coll::Group& group, size_t bytes, uint64_t seed)
    : send(bytes), receive(bytes), group_(group) {
  SeededRandom random(seed);
  for (std::byte& byte : send) byte = static_cast<std::byte>(random.next());
  MemoryDesc desc;
  desc.address = send.data();
  desc.length = send.size();
  auto sending = group.registerMemory(desc);
  REQUIRE(sending);
  sendMemory = *sending;
  desc.address = receive.data();
  auto receiving = group.registerMemory(desc);
  REQUIRE(receiving);
  receiveMemory = *receiving;
}

Vectors::~Vectors() {
  CHECK(group_.deregisterMemory(sendMemory));
  CHECK(group_.deregisterMemory(receiveMemory));
}

void fillNumbers(coll::ElementType type, std::vector<std::byte>& bytes, uint64_t seed) {
  SeededRandom random(seed);
  const size_t size = coll::elementBytes(type);
  for (size_t i = 0; i + size <= bytes.size(); i += size) {
    const auto number = static_cast<uint8_t>(random.below(4));
    const auto asFloat = static_cast<float>(number);
    const auto asDouble = static_cast<double>(number);
    const uint32_t bits = std::bit_cast<uint32_t>(asFloat);
    const auto half = static_cast<uint16_t>(number ? (bits >> 13 & 0x3ff) | (((bits >> 23) - 112) << 10) : 0);
    const auto brain = static_cast<uint16_t>(bits >> 16);
    std::memset(bytes.data() + i, 0, size);
    const void* from = &number;
    size_t count = 1;
    if (type == coll::ElementType::f32) from = &asFloat, count = 4;
    if (type == coll::ElementType::f64) from = &asDouble, count = 8;
    if (type == coll::ElementType::f16) from = &half, count = 2;
    if (type == coll::ElementType::bf16) from = &brain, count = 2;
    std::memcpy(bytes.data() + i, from, count);
  }
}

}  // namespace weft::test
