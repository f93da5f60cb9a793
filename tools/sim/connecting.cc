// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/sim/connecting.h"

#include <algorithm>

namespace weft::sim {

namespace {

constexpr size_t kAtATime = 128;  // NCCL_CONNECT_ROUND_MAX_PEERS
constexpr auto kShortest = std::chrono::microseconds(2);
constexpr auto kLongest = std::chrono::microseconds(200);

}  // namespace

Status Connecting::listen() {
  for (Link* link : links_.in) {
    TRY(auto listener, host_.net().listen(host_.context(), host_.device(), link->handle));
    listeners_.push_back(std::move(listener));
  }
  return {};
}

Status Connecting::make(Wires* wires) {
  wires->to.resize(links_.out.size());
  wires->from.resize(links_.in.size());
  for (size_t begin = 0; begin < std::max(links_.out.size(), links_.in.size()); begin += kAtATime)
    TRY(makeRound(begin, wires));
  listeners_.clear();
  return {};
}

// A round is over when all of its connections stand. A thread that finds nothing looks less and less often.
Status Connecting::makeRound(size_t begin, Wires* wires) {
  const Round round{begin, std::min(begin + kAtATime, links_.out.size()),
                    std::min(begin + kAtATime, links_.in.size())};
  Nanoseconds pause = kShortest;
  for (;;) {
    size_t made = 0;
    size_t open = 0;
    TRY(ask(round, wires, &made, &open));
    TRY(accept(round, wires, &made, &open));
    if (open == 0) return {};
    pause = made > 0 ? kShortest : std::min<Nanoseconds>(pause * 3 / 2, kLongest);
    host_.idle(host_.now() + pause);
  }
}

Status Connecting::ask(const Round& round, Wires* wires, size_t* made, size_t* open) {
  for (size_t i = round.begin; i < round.outs; i++) {
    if (wires->to[i].comm) continue;
    TRY(auto comm, host_.net().connect(host_.context(), host_.device(), links_.out[i]->handle));
    (comm ? *made : *open)++;
    wires->to[i] = {links_.out[i]->to, std::move(comm)};
  }
  return {};
}

Status Connecting::accept(const Round& round, Wires* wires, size_t* made, size_t* open) {
  for (size_t i = round.begin; i < round.ins; i++) {
    if (wires->from[i].comm) continue;
    TRY(auto comm, host_.net().accept(*listeners_[i]));
    (comm ? *made : *open)++;
    wires->from[i] = {links_.in[i]->from, std::move(comm)};
  }
  return {};
}

}  // namespace weft::sim
