// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "tests/softgpu/kernels/primitive.h"
#include "tests/softgpu/kernels/work.h"
#include "tests/softgpu/ownership.h"

namespace softgpu {

namespace {

// A ring is walked by chunks: each rank passes on what comes, and at its turn adds or takes out its own.
struct Ring {
  explicit Ring(const Play& what)
      : play(what),
        ranks(what.block.ranks()),
        position(what.block.ringField(what.block.layout().ringIndex)),
        userRanks(what.block.userRanks()) {}

  std::unique_ptr<Primitive> primitive(int slices, int steps, bool registered) const {
    Ends ends;
    ends.receiveFrom = {play.block.ringField(play.block.layout().ringPrevious)};
    ends.sendTo = {play.block.ringField(play.block.layout().ringNext)};
    ends.slicesPerChunk = slices;
    ends.stepsPerSlice = steps;
    ends.registered = registered;
    return makePrimitive(play.protocol, play.block, play.reduction, ends);
  }

  const Play& play;
  const int ranks;
  const int position;
  const int* const userRanks;
};

void send(Primitive& primitive, const char* from, ptrdiff_t count, bool own, char* copy = nullptr) {
  Operation operation;
  operation.send = true;
  operation.source = from;
  operation.target = copy;
  operation.ownInput = own;
  operation.count = count;
  primitive.run(operation);
}

void receive(Primitive& primitive, char* to, ptrdiff_t count, bool pass) {
  Operation operation;
  operation.receive = true;
  operation.send = pass;
  operation.target = to;
  operation.count = count;
  primitive.run(operation);
}

void reduce(Primitive& primitive, const char* own, char* to, ptrdiff_t count, bool pass, bool last) {
  Operation operation;
  operation.receive = true;
  operation.send = pass;
  operation.source = own;
  operation.ownInput = true;
  operation.target = to;
  operation.last = last;
  operation.count = count;
  primitive.run(operation);
}

// Each chunk goes round twice: once it is summed up, once it is handed out.
void allReduce(const Ring& ring) {
  const Play& play = ring.play;
  const auto primitive = ring.primitive(2, 2, play.work.buffersRegistered);
  const ptrdiff_t ranks = ring.ranks, part = play.work.partCount;
  ptrdiff_t chunk = play.work.chunk;
  const ptrdiff_t loop = chunk * ranks;
  const auto alignment = static_cast<ptrdiff_t>(16 / play.reduction.size());
  for (ptrdiff_t done = 0; done < part; done += loop) {
    const ptrdiff_t left = part - done;
    if (left < loop) chunk = ((left + ranks - 1) / ranks + alignment - 1) / alignment * alignment;
    const auto place = [&](ptrdiff_t step) { return (ring.position + ranks - step) % ranks * chunk; };
    const auto start = [&](ptrdiff_t step) { return play.work.offset + done + place(step); };
    const auto size = [&](ptrdiff_t step) { return std::min(chunk, left - place(step)); };
    send(*primitive, play.in(start(1)), size(1), true);
    for (ptrdiff_t step = 2; step < ranks; ++step) {
      reduce(*primitive, play.in(start(step)), nullptr, size(step), true, false);
    }
    reduce(*primitive, play.in(start(0)), play.out(start(0)), size(0), true, true);
    for (ptrdiff_t step = 1; step < ranks - 1; ++step)
      receive(*primitive, play.out(start(step)), size(step), true);
    receive(*primitive, play.out(start(ranks - 1)), size(ranks - 1), false);
  }
  primitive->finish();
}

void allGather(const Ring& ring) {
  const Play& play = ring.play;
  const bool network = play.work.networkMoves();
  const auto primitive =
      network ? ring.primitive(1, 1, true) : ring.primitive(2, 2, play.work.buffersRegistered);
  const int ranks = ring.ranks;
  const auto own = [&](ptrdiff_t data) { return play.out(data + ring.userRanks[0] * play.work.count); };
  constexpr ptrdiff_t kNetworkChunk = 1024L * 1024 * 1024;
  const ptrdiff_t chunk = network ? kNetworkChunk : play.work.chunk;
  if (network && play.in(play.work.offset) != own(play.work.offset)) {
    std::memmove(own(play.work.offset), play.in(play.work.offset),
                 static_cast<size_t>(play.work.partCount) * play.reduction.size());
  }
  for (ptrdiff_t done = 0; done < play.work.partCount; done += chunk) {
    const ptrdiff_t count = std::min(chunk, play.work.partCount - done);
    const ptrdiff_t data = play.work.offset + done;
    const auto target = [&](int step) { return play.out(data + ring.userRanks[step] * play.work.count); };
    const bool inPlace = network || play.in(data) == own(data);
    send(*primitive, play.in(data), count, false, inPlace ? nullptr : own(data));
    for (int step = 1; step < ranks - 1; ++step) receive(*primitive, target(ranks - step), count, true);
    receive(*primitive, target(1), count, false);
  }
  primitive->finish();
}

void reduceScatter(const Ring& ring) {
  const Play& play = ring.play;
  const auto primitive = ring.primitive(2, 2, false);
  const int ranks = ring.ranks;
  for (ptrdiff_t done = 0; done < play.work.partCount; done += play.work.chunk) {
    const ptrdiff_t count = std::min(play.work.chunk, play.work.partCount - done);
    const ptrdiff_t data = play.work.offset + done;
    const auto own = [&](int step) { return play.in(data + ring.userRanks[step] * play.work.count); };
    send(*primitive, own(ranks - 1), count, true);
    for (int step = 2; step < ranks; ++step)
      reduce(*primitive, own(ranks - step), nullptr, count, true, false);
    reduce(*primitive, own(0), play.out(data), count, false, true);
  }
  primitive->finish();
}

void broadcast(const Ring& ring) {
  const Play& play = ring.play;
  const bool root = ring.userRanks[0] == play.work.root, lastOne = ring.userRanks[1] == play.work.root;
  const bool network = play.work.networkMoves();
  const auto primitive = ring.primitive(1, 1, play.work.buffersRegistered);
  const bool copies = root && play.work.input != play.work.output;
  if (network && copies) {
    std::memmove(play.out(play.work.offset), play.in(play.work.offset),
                 static_cast<size_t>(play.work.partCount) * play.reduction.size());
  }
  for (ptrdiff_t done = 0; done < play.work.partCount; done += play.work.chunk) {
    const ptrdiff_t count = std::min(play.work.chunk, play.work.partCount - done);
    const ptrdiff_t data = play.work.offset + done;
    if (root) {
      send(*primitive, play.in(data), count, false, copies && !network ? play.out(data) : nullptr);
    } else {
      receive(*primitive, play.out(data), count, !lastOne);
    }
  }
  primitive->finish();
}

void reduceToRoot(const Ring& ring) {
  const Play& play = ring.play;
  const auto primitive = ring.primitive(1, 1, false);
  const bool first = ring.userRanks[ring.ranks - 1] == play.work.root,
             root = ring.userRanks[0] == play.work.root;
  for (ptrdiff_t done = 0; done < play.work.partCount; done += play.work.chunk) {
    const ptrdiff_t count = std::min(play.work.chunk, play.work.partCount - done);
    const ptrdiff_t data = play.work.offset + done;
    if (first) {
      send(*primitive, play.in(data), count, true);
    } else {
      reduce(*primitive, play.in(data), root ? play.out(data) : nullptr, count, !root, root);
    }
  }
  primitive->finish();
}

}  // namespace

void playRing(const Play& play, const DeviceFunction& function) {
  static const auto* const kPlayers = &immortal<std::map<std::string, void (*)(const Ring&)>>(
      std::map<std::string, void (*)(const Ring&)>{{"AllReduce", allReduce},
                                                   {"AllGather", allGather},
                                                   {"ReduceScatter", reduceScatter},
                                                   {"Broadcast", broadcast},
                                                   {"Reduce", reduceToRoot}});
  kPlayers->at(function.collective)(Ring(play));
}

}  // namespace softgpu
