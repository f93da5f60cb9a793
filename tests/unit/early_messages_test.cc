// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/early_messages.h"

#include "providers/loop/transport.h"
#include "tests/support/catch.h"

// Messages that arrive before their receive: each has a place until nobody wants it, and its place is used
// again.
using namespace weft;
using namespace weft::core;

namespace {

struct Stage {
  Stage() {
    const auto transport = loop::makeTransport({});
    auto opened = transport->open(transport->discover()->front());
    device = opened.take();
    cache = std::make_unique<mem::RegionCache>(std::vector<std::shared_ptr<Device>>{device});
    heap = std::make_unique<mem::Heap>(cache.get(), nullptr);
  }
  uint32_t begin() {
    const auto index = messages.begin(*heap, nullptr, 1, 2, 300);
    REQUIRE(index);
    return *index;
  }
  std::shared_ptr<Device> device;
  std::unique_ptr<mem::RegionCache> cache;
  std::unique_ptr<mem::Heap> heap;
  EarlyMessages messages;
};

using State = EarlyMessages::State;

}  // namespace

TEST_CASE("an early message has what was said of it, and memory for its bytes") {
  Stage stage;
  const uint32_t index = stage.begin();
  CHECK(stage.messages.contains(index));
  CHECK_FALSE(stage.messages.contains(index + 1));
  const EarlyMessages::Early& early = stage.messages.at(index);
  CHECK(early.state == State::coming);
  CHECK(early.tag == 1);
  CHECK(early.k == 2);
  CHECK(early.size == 300);
  CHECK(early.block.bytes() >= 300);
}

TEST_CASE("a message that is here is gone when it is released, with its memory") {
  Stage stage;
  const uint32_t index = stage.begin();
  CHECK(stage.messages.landed(index) == &stage.messages.at(index));
  CHECK(stage.messages.at(index).state == State::here);
  stage.messages.release(index);
  CHECK(stage.messages.at(index).state == State::free);
  CHECK_FALSE(stage.messages.at(index).block);
  CHECK(stage.begin() == index);
}

TEST_CASE("a message that nobody wants keeps its memory until its bytes have come") {
  Stage stage;
  const uint32_t index = stage.begin();
  stage.messages.release(index);
  CHECK(stage.messages.at(index).state == State::orphan);
  CHECK(stage.messages.at(index).block);
  CHECK(stage.begin() != index);
  stage.messages.release(index);  // again is nothing
  CHECK(stage.messages.at(index).state == State::orphan);
  CHECK(stage.messages.landed(index) == nullptr);
  CHECK(stage.messages.at(index).state == State::free);
  CHECK(stage.messages.landed(index) == nullptr);
  CHECK(stage.begin() == index);
}

TEST_CASE("places are used again, whatever order they are given back in") {
  Stage stage;
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < 200; i++) {
    all.push_back(stage.begin());
    CHECK(all.back() == i);
  }
  for (const uint32_t index : all) {
    (void)stage.messages.landed(index);
    stage.messages.release(index);
  }
  for (uint32_t i = 0; i < 200; i++) CHECK(stage.begin() < 200);
  CHECK(stage.begin() == 200);
}
