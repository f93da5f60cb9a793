// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/nccl/kernel_queue.h"
#include "tests/nccl/shared.h"

// Puts, gets and signals of kernels, by NCCL's proxy thread and the plugin's table of one-sided operations.
namespace nccltest {

namespace {

constexpr size_t kBlock = 5'000;  // numbers that a rank puts to another, in each context
constexpr int kTurns = 6;

bool said(bool good, const Rank& rank, const char* what) {
  if (!good) std::fprintf(stderr, "rank %d: %s did not come\n", rank.rank, what);
  return good;
}

struct Scene {
  explicit Scene(const Rank& on)
      : rank(on),
        ranks(static_cast<size_t>(on.ranks)),
        source(on, kBlock * ranks * kKernelContexts),
        target(on, kBlock * ranks * kKernelContexts),
        words(on, 2 * 64),
        queues(on) {}

  const Rank& rank;
  const size_t ranks;
  Shared source, target;
  Shared words;  // 64 bits each: the first one counts who has come so far, those behind it are values
  KernelQueues queues;
  uint64_t meetings = 0;

  static int32_t number(size_t from, size_t to, size_t context, int turn, size_t place) {
    return static_cast<int32_t>((place * 31 + from * 7 + to * 3 + context * 11 + static_cast<size_t>(turn)) %
                                1000003);
  }
  size_t blockOf(size_t context, size_t peer) const { return (context * ranks + peer) * kBlock; }
  static KernelRange at(const Shared& memory, size_t element) {
    return {memory.window(), element * sizeof(int32_t)};
  }
  KernelRange word(size_t index) const { return at(words, index * 2); }

  void fill(int turn) const {
    std::vector<int32_t> values(kBlock * ranks * kKernelContexts);
    for (size_t context = 0; context < kKernelContexts; ++context)
      for (size_t peer = 0; peer < ranks; ++peer)
        for (size_t i = 0; i < kBlock; ++i)
          values[blockOf(context, peer) + i] = number(static_cast<size_t>(rank.rank), peer, context, turn, i);
    source.write(values);
  }

  // The first half without a signal, which the strong signal of the second half covers.
  void put() {
    const size_t half = kBlock / 2;
    for (int context = 0; context < kKernelContexts; ++context)
      for (int peer = 0; peer < rank.ranks; ++peer) {
        const size_t from = blockOf(static_cast<size_t>(context), static_cast<size_t>(peer));
        const size_t to = blockOf(static_cast<size_t>(context), static_cast<size_t>(rank.rank));
        queues.put(context, peer, at(source, from), at(target, to), half * sizeof(int32_t));
        queues.putSignal(context, peer, at(source, from + half), at(target, to + half),
                         (kBlock - half) * sizeof(int32_t), 0, 1);
      }
  }

  // A signal of each rank, all to one word, in each context.
  bool arrived(int turn) const {
    for (int context = 0; context < kKernelContexts; ++context) {
      const uint64_t all = static_cast<uint64_t>(turn + 1) * ranks;
      if (!said(queues.awaitSignal(context, 0, all), rank, "a signal")) return false;
      if (!said(queues.awaitCounter(context, 1, all), rank, "a counter")) return false;
    }
    return true;
  }

  bool holds(const Shared& memory, size_t at, size_t from, size_t to, size_t context, int turn) const {
    const auto values = memory.read();
    for (size_t i = 0; i < kBlock; ++i) {
      if (values[at + i] == number(from, to, context, turn, i)) continue;
      std::fprintf(stderr, "rank %d, turn %d, context %zu: number %zu from rank %zu is %d, not %d\n",
                   rank.rank, turn, context, i, from, values[at + i], number(from, to, context, turn, i));
      return false;
    }
    return true;
  }

  bool holdsAll(int turn) const {
    for (size_t context = 0; context < kKernelContexts; ++context)
      for (size_t peer = 0; peer < ranks; ++peer)
        if (!holds(target, blockOf(context, peer), peer, static_cast<size_t>(rank.rank), context, turn))
          return false;
    return true;
  }

  // Nobody writes to this rank before every rank has come here: a signal in a window.
  bool meet() {
    ++meetings;
    for (int peer = 0; peer < rank.ranks; ++peer) queues.addWord(0, peer, word(0), 3);
    const auto* mine = reinterpret_cast<const uint64_t*>(words.at(0));
    const uint64_t all = 3 * meetings * ranks;
    uint64_t now = 0;
    for (int tries = 0; tries < 30'000 && now < all; ++tries) {
      expect(cuda.memcpy(&now, mine, sizeof now, kDefaultCopy), "cudaMemcpy");
      if (now < all) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return said(now >= all, rank, "a signal in a window");
  }

  // What the next rank has for this one, straight from its source.
  bool gets(int turn) {
    const int next = (rank.rank + 1) % rank.ranks;
    const size_t from = blockOf(1, static_cast<size_t>(rank.rank));
    queues.get(1, next, at(source, from), at(target, 0), kBlock * sizeof(int32_t));
    queues.flush(1, rank.rank);
    return said(queues.awaitTaken(1, next) && queues.awaitTaken(1, rank.rank), rank, "a get") &&
           holds(target, 0, static_cast<size_t>(next), static_cast<size_t>(rank.rank), 1, turn);
  }

  // Eight bytes that are in the descriptor itself, and a signal of a value that needs all its 64 bits.
  bool putsValues() {
    const uint64_t value = 0x0123456789abcdef, add = 0x1122334455667788;
    for (int peer = 0; peer < rank.ranks; ++peer) {
      queues.putValue(2, peer, value + static_cast<uint64_t>(rank.rank),
                      word(1 + static_cast<size_t>(rank.rank)));
      queues.addSignal(2, peer, 5, add);
    }
    if (!said(queues.awaitSignal(2, 5, add * ranks), rank, "a signal of a value")) return false;
    const auto all = words.read();
    for (size_t peer = 0; peer < ranks; ++peer) {
      uint64_t found = 0;
      std::memcpy(&found, &all[2 * (1 + peer)], sizeof found);
      if (!said(found == value + peer, rank, "a value")) return false;
    }
    return true;
  }
};

}  // namespace

bool kernelPuts(Rank& rank) {
  if (nccl.devCommCreate == nullptr || nccl.commWindowRegister == nullptr) {
    std::fprintf(stderr, "this NCCL has no ncclDevCommCreate\n");
    return false;
  }
  Scene scene(rank);
  for (int turn = 0; turn < kTurns; ++turn) {
    scene.fill(turn);
    if (!scene.meet()) return false;  // every source has its numbers
    scene.put();
    if (!scene.arrived(turn) || !scene.holdsAll(turn) || !scene.meet() || !scene.gets(turn) || !scene.meet())
      return false;
  }
  return scene.putsValues() && scene.meet() && sums(rank, 1000);
}

}  // namespace nccltest
