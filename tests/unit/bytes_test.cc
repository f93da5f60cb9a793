// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/bytes.h"

#include "tests/support/catch.h"

using namespace weft;

TEST_CASE("what is written is read back, little-endian") {
  ByteWriter writer;
  writer.put(uint16_t{0x1234}).put(int64_t{-2}).text("rail").put(true);
  CHECK(writer.bytes()[0] == std::byte(0x34));
  ByteReader reader(writer.bytes());
  CHECK(reader.get<uint16_t>() == 0x1234);
  CHECK(reader.get<int64_t>() == -2);
  CHECK(reader.text() == "rail");
  CHECK(reader.get<bool>());
  CHECK(reader.done());
}

TEST_CASE("every truncation fails and none reads past the end") {
  ByteWriter writer;
  writer.put(uint32_t{7}).text("abc").put(uint64_t{9});
  for (size_t n = 0; n < writer.bytes().size(); n++) {
    const Bytes cut(writer.bytes().begin(), writer.bytes().begin() + static_cast<ptrdiff_t>(n));
    ByteReader reader(cut);
    reader.get<uint32_t>();
    reader.text();
    reader.get<uint64_t>();
    CHECK(reader.failed());
    CHECK_FALSE(reader.done());
  }
}
