// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/bytes.h"

#include <atomic>
#include <thread>
#include <vector>

#include "src/base/lines.h"
#include "tests/support/catch.h"
#include "tests/support/sanitizer.h"

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

TEST_CASE("lines are copied whole, wherever they begin and end") {
  std::vector<std::byte> from(1000), to(2000);
  for (size_t i = 0; i < from.size(); i++) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (size_t offset = 0; offset < 130; offset += 13) {
    for (size_t bytes = 0; bytes <= from.size(); bytes += bytes < 300 ? 1 : 50) {
      std::fill(to.begin(), to.end(), std::byte{0});
      copyLines(to.data() + offset, from.data(), bytes);
      const auto begin = to.begin() + static_cast<ptrdiff_t>(offset);
      const auto end = begin + static_cast<ptrdiff_t>(bytes);
      CHECK(std::equal(begin, end, from.begin()));
      CHECK(std::count(to.begin(), begin, std::byte{0}) == begin - to.begin());
      CHECK(std::count(end, to.end(), std::byte{0}) == to.end() - end);
    }
  }
}

namespace {

constexpr size_t kLines = 64, kWords = 16;

// A watcher as NCCL's kernels are one: it reads without asking. Returns how many words were older than the
// end of their line. `skipped`: words of the first line that are not copied.
uint64_t tornWords(size_t skipped) {
  alignas(128) static uint64_t to[kLines * kWords];
  std::fill(std::begin(to), std::end(to), 0);
  const size_t lines = skipped == 0 ? kLines : 2;  // where the copy begins is looked at often
  std::vector<uint64_t> from(lines * kWords);
  std::atomic<bool> done{false};
  std::atomic<uint64_t> torn{0}, seen{0};
  std::thread watcher([&] {
    const volatile uint64_t* words = to;
    for (size_t line = 0; !done; line = (line + 1) % lines) {
      const uint64_t flag = words[line * kWords + kWords - 1];
      std::atomic_thread_fence(std::memory_order_acquire);
      for (size_t i = line == 0 ? skipped : 0; i < kWords - 1; i++)
        torn += words[line * kWords + i] < flag ? 1 : 0;
      seen += flag > 0 ? 1 : 0;
    }
  });
  for (uint64_t round = 1; round < 200'000 || seen == 0; round++) {
    std::fill(from.begin(), from.end(), round);
    copyLines(reinterpret_cast<std::byte*>(to + skipped), reinterpret_cast<const std::byte*>(from.data()),
              (lines * kWords - skipped) * sizeof *to);
  }
  done = true;
  watcher.join();
  return torn;
}

}  // namespace

TEST_CASE("who sees the end of a line sees all of it, also where the copy begins within one") {
  if (test::kSanitized) return;  // to read what is being written is what it forbids
  for (const size_t skipped : {0, 1, 3, 7, 12}) {
    INFO(skipped << " words are not copied");
    CHECK(tornWords(skipped) == 0);
  }
}
