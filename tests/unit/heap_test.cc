// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/mem/heap.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "providers/loop/transport.h"
#include "tests/support/catch.h"

// Memory for pieces of any size that come and go: they never overlap, one memory serves all sizes, and what
// nobody uses is given back.
using namespace weft;
using namespace weft::mem;

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kChunk = 4 * kMiB;

struct Stage {
  explicit Stage(int64_t mayKeep = 0) : room(mayKeep) {
    const auto transport = loop::makeTransport({});
    device = transport->open(transport->discover()->front()).take();
    cache = std::make_unique<RegionCache>(std::vector<std::shared_ptr<Device>>{device});
    heap = std::make_unique<Heap>(cache.get(), &room);
  }
  Piece take(size_t bytes) {
    auto piece = heap->take(bytes);
    REQUIRE(piece);
    REQUIRE(piece->bytes() >= bytes);
    REQUIRE(piece->region()->covers(piece->data(), piece->bytes()));
    return piece.take();
  }
  std::atomic<int64_t> room;
  std::shared_ptr<Device> device;
  std::unique_ptr<RegionCache> cache;
  std::unique_ptr<Heap> heap;
};

}  // namespace

TEST_CASE("pieces of a heap never overlap, and all of it is one again when they are back") {
  Stage stage(64 * static_cast<int64_t>(kMiB));
  std::mt19937 random(7);
  struct Taken {
    Piece piece;
    std::byte mark;
  };
  std::vector<Taken> all;
  size_t used = 0, most = 0;
  for (int i = 0; i < 20'000; i++) {
    if (used < 16 * kMiB && random() % 2 == 0) {
      const size_t bytes = 1 + (random() >> random() % 24) % (kMiB / 2);
      Taken next{stage.take(bytes), std::byte(i)};
      std::memset(next.piece.data(), i & 255, next.piece.bytes());
      used += next.piece.bytes();
      all.push_back(std::move(next));
    } else if (!all.empty()) {
      const size_t at = random() % all.size();
      std::swap(all[at], all.back());
      const Taken& last = all.back();
      used -= last.piece.bytes();
      REQUIRE(last.piece.data()[0] == last.mark);
      REQUIRE(std::memcmp(last.piece.data(), last.piece.data() + 1, last.piece.bytes() - 1) == 0);
      all.pop_back();
    }
    most = std::max(most, stage.heap->mappedBytes());
  }
  CHECK(most <= 40 * kMiB);
  all.clear();
  const size_t kept = stage.heap->mappedBytes();
  for (size_t i = 0; i < kept / kChunk; i++) all.push_back({stage.take(kChunk), {}});
  CHECK(stage.heap->mappedBytes() == kept);
}

TEST_CASE("one memory serves pieces of all sizes, one after the other") {
  constexpr size_t kPool = 8 * kMiB;
  Stage stage(kPool);
  for (size_t bytes = 256; bytes <= kChunk; bytes += std::max<size_t>(bytes / 4, 256)) {
    std::vector<Piece> all;
    for (size_t used = 0; used + bytes <= kPool; used += bytes) all.push_back(stage.take(bytes));
    CHECK(stage.heap->mappedBytes() <= 2 * kPool);
  }
  CHECK(stage.heap->mappedBytes() <= kPool);
  CHECK(stage.room >= 0);
}

TEST_CASE("an empty chunk goes at once beyond what may be kept, and after a while in any case") {
  Stage stage(2 * kChunk);
  std::vector<Piece> all;
  for (int i = 0; i < 3; i++) all.push_back(stage.take(kChunk));
  CHECK(stage.heap->mappedBytes() == 3 * kChunk);
  CHECK(stage.room < 0);
  all.pop_back();
  CHECK(stage.heap->mappedBytes() == 2 * kChunk);
  all.pop_back();
  CHECK(stage.heap->mappedBytes() == 2 * kChunk);
  stage.heap->tidy();
  CHECK(stage.heap->mappedBytes() == 2 * kChunk);  // it was used a moment ago
  stage.heap->tidy();
  CHECK(stage.heap->mappedBytes() == kChunk);
  for (int i = 0; i < 3; i++) stage.heap->tidy();
  CHECK(stage.heap->mappedBytes() == kChunk);  // of a piece that is in use
  all.clear();
  for (int i = 0; i < 3; i++) stage.heap->tidy();
  CHECK(stage.heap->mappedBytes() == 0);
  CHECK(stage.room == int64_t{2 * kChunk});
}

TEST_CASE("a piece that is larger than a chunk has memory of its own, which goes with it") {
  Stage stage(64 * static_cast<int64_t>(kMiB));
  Piece large = stage.take(kChunk + 1);
  std::memset(large.data(), 1, large.bytes());
  for (int i = 0; i < 3; i++) stage.heap->tidy();
  CHECK(stage.heap->mappedBytes() >= kChunk + 1);
  const Piece small = stage.take(300);
  CHECK(small.offset() < kChunk);
  large = Piece();
  CHECK(stage.heap->mappedBytes() == kChunk);
}
