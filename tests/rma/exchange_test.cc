// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/rma/exchange.h"

#include <deque>

#include "src/base/random.h"
#include "tests/support/catch.h"

// The all-gather of a registration, without a network.
using namespace weft;
using namespace weft::rma;

namespace {

struct Carried {
  uint32_t to;
  std::vector<std::pair<uint32_t, Descriptor>> descriptors;
};

// Lets each rank send all rounds that it can; the messages go to `network`. Returns the descriptors sent.
uint64_t send(Exchange& from, uint32_t ranks, std::deque<Carried>* network) {
  uint64_t sent = 0;
  while (const auto round = from.nextRound()) {
    Carried message{round->to, {}};
    for (uint32_t i = 0; i < round->count; i++) {
      const uint32_t rank = (round->first + i) % ranks;
      message.descriptors.emplace_back(rank, from.of(rank));
    }
    sent += round->count;
    network->push_back(std::move(message));
  }
  return sent;
}

}  // namespace

TEST_CASE("one-sided: a registration's exchange brings every descriptor to every rank, once") {
  SeededRandom random(1);
  for (const uint32_t ranks : {1u, 2u, 3u, 5u, 8u, 13u, 64u, 65u, 1024u}) {
    INFO(ranks << " ranks");
    std::vector<Exchange> all;
    std::vector<uint64_t> sent(ranks);
    std::deque<Carried> network;
    for (uint32_t rank = 0; rank < ranks; rank++) all.emplace_back(ranks, rank);
    for (uint32_t rank = 0; rank < ranks; rank++) {
      all[rank].begin(Descriptor{1000 + rank, 1, 1, {}});
      sent[rank] += send(all[rank], ranks, &network);
    }
    while (!network.empty()) {
      const size_t which = random.below(std::min<uint64_t>(network.size(), 100));  // out of order
      const Carried message = network[which];
      network.erase(network.begin() + static_cast<std::ptrdiff_t>(which));
      for (const auto& [rank, descriptor] : message.descriptors)
        REQUIRE(all[message.to].take(rank, descriptor));
      sent[message.to] += send(all[message.to], ranks, &network);
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
      REQUIRE(all[rank].done());
      CHECK(sent[rank] == ranks - 1);  // 16 bytes of each other rank
      for (uint32_t of = 0; of < ranks; of++) REQUIRE(all[rank].of(of).length == 1000 + of);
    }
  }
}

TEST_CASE("one-sided: an exchange takes no rank twice, and none that there is not") {
  Exchange exchange(3, 1);
  CHECK(exchange.take(2, Descriptor()));
  CHECK_FALSE(exchange.take(2, Descriptor()));
  CHECK_FALSE(exchange.take(3, Descriptor()));
  CHECK_FALSE(exchange.take(uint64_t{1} << 40, Descriptor()));
  CHECK_FALSE(exchange.nextRound());  // its own is not there yet
}
