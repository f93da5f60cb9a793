// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/wire.h"
#include "tests/support/catch.h"

// The address of a lane as it comes from a peer: each part of it that cannot be is refused.
using namespace weft;
using namespace weft::tcp;

namespace {

LaneAddress anAddress() {
  LaneAddress address;
  address.v6 = true;
  address.streams = 3;
  address.port = 4711;
  address.lane = 17;
  for (size_t i = 0; i < address.ip.size(); i++) address.ip[i] = static_cast<std::byte>(i);
  return address;
}

}  // namespace

TEST_CASE("a lane's address comes as it was sent") {
  const auto decoded = decodeLaneAddress(encode(anAddress()));
  REQUIRE(decoded);
  CHECK(encode(*decoded) == encode(anAddress()));
  CHECK(decoded->v6);
  CHECK(decoded->streams == 3);
  CHECK(decoded->port == 4711);
}

TEST_CASE(
    "a lane's address of another version, family, without a port or a stream, or of another length is "
    "refused") {
  const Bytes good = encode(anAddress());
  for (const auto& [at, value] : {std::pair<size_t, int>{0, 2}, {0, 0}, {1, 2}, {2, 0}}) {
    Bytes bad = good;
    bad[at] = static_cast<std::byte>(value);
    CHECK(!decodeLaneAddress(bad));
  }
  LaneAddress address = anAddress();
  address.port = 0;
  CHECK(!decodeLaneAddress(encode(address)));
  CHECK(!decodeLaneAddress(std::span(good).first(good.size() - 1)));
  Bytes longer = good;
  longer.push_back(std::byte{0});
  CHECK(!decodeLaneAddress(longer));
}
