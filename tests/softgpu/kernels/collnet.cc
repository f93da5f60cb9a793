// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <functional>
#include <thread>

#include "tests/softgpu/kernels/primitive.h"
#include "tests/softgpu/kernels/work.h"

namespace softgpu {

namespace {

constexpr int kNobody = -1;
// Which connection of a peer goes up the chain and which down.
constexpr int kUp = 1;
constexpr int kDown = 0;

// A node's ranks in a row. The first one's neighbour above is the network, whose number is that of the ranks.
struct Chain {
  int above, below;
};

Chain readChain(const Block& block) {
  char* const tree = block.channel() + block.layout().collnetChain;
  return {field<int>(tree, 4), field<int>(tree, static_cast<int>(kTreeDown))};
}

std::vector<int> peers(int peer) {
  return peer == kNobody ? std::vector<int>{} : std::vector<int>{peer};
}

// Calls `step` with offset and count of each chunk of this channel: channels take turns.
void eachChunk(const Play& play, const std::function<void(ptrdiff_t, ptrdiff_t)>& step) {
  const ptrdiff_t mine = play.block.channelId() - play.work.firstChannel;
  const ptrdiff_t channels = play.work.lastChannel - play.work.firstChannel + 1;
  for (ptrdiff_t done = 0; done < play.work.count; done += channels * play.work.chunk) {
    const ptrdiff_t at = done + mine * play.work.chunk;
    step(at, std::min(play.work.chunk, play.work.count - at));
  }
}

std::unique_ptr<Primitive> primitiveOf(const Play& play, int from, int to, int index) {
  Ends ends;
  ends.receiveFrom = peers(from);
  ends.sendTo = peers(to);
  ends.index = index;
  return makePrimitive(play.protocol, play.block, play.reduction, ends);
}

void playUp(const Play& play, const Chain& chain) {
  const auto primitive = primitiveOf(play, chain.below, chain.above, kUp);
  eachChunk(play, [&](ptrdiff_t at, ptrdiff_t count) {
    Operation operation;
    operation.receive = chain.below != kNobody;
    operation.send = true;
    operation.source = play.in(at);
    operation.ownInput = true;
    operation.count = count;
    primitive->run(operation);
  });
  primitive->finish();
}

void playDown(const Play& play, const Chain& chain) {
  const auto primitive = primitiveOf(play, chain.above, chain.below, kDown);
  eachChunk(play, [&](ptrdiff_t at, ptrdiff_t count) {
    Operation operation;
    operation.receive = true;
    operation.send = chain.below != kNobody;
    operation.target = play.out(at);
    operation.last = chain.above == play.block.ranks();
    operation.count = count;
    primitive->run(operation);
  });
  primitive->finish();
}

}  // namespace

// Up and down are under way at the same time, as by two halves of a GPU's block.
void playCollnetChain(const Play& play) {
  const Chain chain = readChain(play.block);
  std::thread down([&] { playDown(play, chain); });
  playUp(play, chain);
  down.join();
}

}  // namespace softgpu
