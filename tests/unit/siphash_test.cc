// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/siphash.h"

#include <vector>

#include "tests/support/catch.h"

using namespace weft;

namespace {

Key128 countingKey() {
  Key128 key;
  for (size_t i = 0; i < key.size(); i++) key[i] = std::byte(i);
  return key;
}

std::vector<std::byte> countingMessage(size_t n) {
  std::vector<std::byte> message(n);
  for (size_t i = 0; i < n; i++) message[i] = std::byte(i);
  return message;
}

}  // namespace

// First and second 128-bit vector of the authors' reference implementation (key and message count up from 0).
TEST_CASE("SipHash-2-4-128 gives the reference values") {
  const Tag128 empty = sipHash128(countingKey(), {});
  const unsigned char expected[16] = {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
                                      0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93};
  for (size_t i = 0; i < 16; i++) CHECK(empty[i] == std::byte(expected[i]));
  const Tag128 one = sipHash128(countingKey(), countingMessage(1));
  CHECK(one[0] == std::byte(0xda));
  CHECK(one[1] == std::byte(0x87));
  CHECK(one[7] == std::byte(0x44));
  CHECK(one[15] == std::byte(0x45));
}

TEST_CASE("every byte of key and message matters") {
  const auto message = countingMessage(23);
  const Tag128 tag = sipHash128(countingKey(), message);
  for (size_t i = 0; i < message.size(); i++) {
    auto changed = message;
    changed[i] ^= std::byte(1);
    CHECK_FALSE(equalSecret(tag, sipHash128(countingKey(), changed)));
  }
  Key128 key = countingKey();
  key[9] ^= std::byte(0x80);
  CHECK_FALSE(equalSecret(tag, sipHash128(key, message)));
  CHECK(equalSecret(tag, sipHash128(countingKey(), message)));
}
