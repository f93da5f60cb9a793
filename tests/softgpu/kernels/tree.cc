// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <functional>
#include <thread>

#include "tests/softgpu/kernels/primitive.h"
#include "tests/softgpu/kernels/work.h"

namespace softgpu {

namespace {

constexpr int kMostChildren = 3;

struct Tree {
  int up = -1;
  std::vector<int> down;
};

Tree readTree(const Block& block) {
  char* const tree = block.channel() + block.layout().tree;
  Tree read;
  read.up = field<int>(tree, 4);
  for (int child = 0; child < kMostChildren; ++child) {
    const int rank = field<int>(tree, static_cast<int>(kTreeDown) + 4 * child);
    if (rank != -1) read.down.push_back(rank);
  }
  return read;
}

// Calls `step` with offset and count of each chunk of this channel's part.
void eachChunk(const Play& play, const std::function<void(ptrdiff_t, ptrdiff_t)>& step) {
  for (ptrdiff_t done = 0; done < play.work.partCount; done += play.work.chunk) {
    step(play.work.offset + done, std::min(play.work.chunk, play.work.partCount - done));
  }
}

std::unique_ptr<Primitive> primitiveOf(const Play& play, std::vector<int> from, std::vector<int> to) {
  Ends ends;
  ends.receiveFrom = std::move(from);
  ends.sendTo = std::move(to);
  return makePrimitive(play.protocol, play.block, play.reduction, ends);
}

// The root sums up what its children have and hands it back at once.
void playRoot(const Play& play, const Tree& tree) {
  const auto primitive = primitiveOf(play, tree.down, tree.down);
  eachChunk(play, [&](ptrdiff_t at, ptrdiff_t count) {
    Operation operation;
    operation.receive = operation.send = true;
    operation.source = play.in(at);
    operation.target = play.out(at);
    operation.ownInput = operation.last = true;
    operation.count = count;
    primitive->run(operation);
  });
  primitive->finish();
}

void playUp(const Play& play, const Tree& tree) {
  const auto primitive = primitiveOf(play, tree.down, {tree.up});
  eachChunk(play, [&](ptrdiff_t at, ptrdiff_t count) {
    Operation operation;
    operation.receive = !tree.down.empty();
    operation.send = true;
    operation.source = play.in(at);
    operation.ownInput = true;
    operation.count = count;
    primitive->run(operation);
  });
  primitive->finish();
}

void playDown(const Play& play, const Tree& tree) {
  const auto primitive = primitiveOf(play, {tree.up}, tree.down);
  eachChunk(play, [&](ptrdiff_t at, ptrdiff_t count) {
    Operation operation;
    operation.receive = true;
    operation.send = !tree.down.empty();
    operation.target = play.out(at);
    operation.count = count;
    primitive->run(operation);
  });
  primitive->finish();
}

}  // namespace

// Up and down are under way at the same time, as by two halves of a GPU's block.
void playTree(const Play& play) {
  const Tree tree = readTree(play.block);
  if (tree.up == -1) {
    playRoot(play, tree);
    return;
  }
  std::thread down([&] { playDown(play, tree); });
  playUp(play, tree);
  down.join();
}

}  // namespace softgpu
