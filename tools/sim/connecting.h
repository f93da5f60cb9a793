// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "src/control/handle.h"
#include "tools/sim/host.h"
#include "tools/sim/movement.h"

// The connections of a simulation, and how a rank makes its own: as NCCL does, which has so many peers of a
// rank connect at a time. Tasks of one thread.
namespace weft::sim {

// A connection. The acceptor's handle is what a job's bootstrap hands on.
struct Link {
  int from = 0;
  int to = 0;
  std::array<std::byte, control::kHandleBytes> handle{};
};

// A rank's links, in the order in which it makes them: the nearest peers round the ranks first.
struct LinksOfRank {
  std::vector<Link*> out;
  std::vector<Link*> in;
};

class Connecting {
 public:
  Connecting(Host& host, const LinksOfRank& links) : host_(host), links_(links) {}

  Status listen();  // all of them
  // Makes all connections, and sleeps meanwhile.
  Status make(Wires* wires);

 private:
  // Places in links_ from `begin` on, up to each end.
  struct Round {
    size_t begin;
    size_t outs;
    size_t ins;
  };

  Status makeRound(size_t begin, Wires* wires);
  Status ask(const Round& round, Wires* wires, size_t* made, size_t* open);
  Status accept(const Round& round, Wires* wires, size_t* made, size_t* open);

  Host& host_;
  const LinksOfRank& links_;
  std::deque<std::unique_ptr<core::ListenComm>> listeners_;
};

}  // namespace weft::sim
