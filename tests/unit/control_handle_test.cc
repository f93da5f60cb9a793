// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <arpa/inet.h>
#include <cstring>

#include "src/base/random.h"
#include "src/control/handle.h"
#include "src/control/wire.h"
#include "tests/support/catch.h"

using namespace weft;
using namespace weft::control;

namespace {

SocketAddress address(const char* text, uint16_t port) {
  SocketAddress out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    out.storage.ss_family = AF_INET;
    out.length = sizeof *v4;
  } else {
    REQUIRE(inet_pton(AF_INET6, text, &v6->sin6_addr) == 1);
    out.storage.ss_family = AF_INET6;
    out.length = sizeof *v6;
  }
  out.setPort(port);
  return out;
}

Handle sample() {
  Handle handle;
  fillRandom(handle.process);
  fillRandom(handle.secret);
  handle.listener = 77;
  handle.addresses = {address("192.0.2.7", 4711), address("2001:db8::1", 4711)};
  return handle;
}

using Raw = std::array<std::byte, kHandleBytes>;

Raw encoded(const Handle& handle) {
  Raw raw;
  raw.fill(std::byte{0xee});
  handle.encode(raw);
  return raw;
}

std::string failure(const Raw& raw) {
  const auto decoded = Handle::decode(raw);
  return decoded ? "" : decoded.error().message();
}

}  // namespace

TEST_CASE("a handle comes back as it went") {
  const Handle handle = sample();
  const auto back = Handle::decode(encoded(handle));
  REQUIRE(back);
  CHECK(back->process == handle.process);
  CHECK(back->secret == handle.secret);
  CHECK(back->listener == 77);
  REQUIRE(back->addresses.size() == 2);
  CHECK(back->addresses[0].text() == "192.0.2.7:4711");
  CHECK(back->addresses[1].text() == "[2001:db8::1]:4711");
}

TEST_CASE("the scratch is zero in a fresh handle and does not matter later") {
  Raw raw = encoded(sample());
  for (size_t i = kScratchOffset; i < kHandleBytes; i++) {
    CHECK(raw[i] == std::byte{0});
    raw[i] = std::byte{0xff};
  }
  CHECK(Handle::decode(raw));
}

TEST_CASE("every damaged byte of a handle is noticed") {
  const Raw good = encoded(sample());
  for (size_t i = 0; i < kScratchOffset; i++) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      Raw bad = good;
      bad[i] ^= std::byte(flip);
      CHECK_FALSE(failure(bad).empty());
    }
  }
}

TEST_CASE("what is not a handle of ours is named") {
  Raw raw{};
  CHECK(failure(raw).find("not a weft handle") != std::string::npos);
  raw = encoded(sample());
  raw[4] = std::byte{99};
  CHECK(failure(raw).find("wire version 99, this process " + std::to_string(kWireVersion)) !=
        std::string::npos);
  raw = encoded(sample());
  raw[50] ^= std::byte{1};
  CHECK(failure(raw).find("damaged") != std::string::npos);
}

TEST_CASE("of many addresses those that fit are kept, in order") {
  Handle handle = sample();
  handle.addresses.clear();
  for (int i = 0; i < 20; i++) {
    handle.addresses.push_back(address("198.51.100.1", 5));
    handle.addresses.push_back(address("2001:db8::2", 5));
  }
  const auto back = Handle::decode(encoded(handle));
  REQUIRE(back);
  CHECK(back->addresses.size() >= 4);
  CHECK(back->addresses[0].family() == AF_INET);
  CHECK(back->addresses[1].family() == AF_INET6);
}

TEST_CASE("a handle without addresses is refused") {
  Handle handle = sample();
  handle.addresses.clear();
  CHECK(failure(encoded(handle)).find("no address") != std::string::npos);
}
