// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "providers/loop/options.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "tests/world/played_tcp.h"
#include "weft/collective.h"

// Everything that a seed decides before a world begins: the fabric and its habits, the settings, which rank
// sends what to which, and what is done to whom and when. Values; the same seed draws the same plan.
namespace weft::world {

struct MessagePlan {
  uint64_t id = 0;
  size_t bytes = 0;
  int tag = 0;
};

// A connection, and the groups of receives its receiver posts, in their order. The sender sends each tag's
// messages in that order, and those of different tags as it likes.
struct FlowPlan {
  int from = 0;
  int to = 0;
  int communicator = 0;
  Nanoseconds begins{};  // nobody connects before
  std::vector<std::vector<MessagePlan>> groups;
  Nanoseconds pace{};   // about so long each end lets pass between two of its groups or messages
  bool relays = false;  // it sends one more than its rank has received, as in a ring of NCCL's
  size_t messages() const;
  size_t largest() const;
};

// An operation of a collective group, as coll::Operation has it.
struct OperationPlan {
  uint64_t id = 0;
  coll::OperationKind kind = coll::OperationKind::allReduce;
  coll::ElementType type = coll::ElementType::i32;
  coll::ReduceOp op = coll::ReduceOp::sum;
  size_t bytes = 0;
  size_t bytesPerRank = 0;
  size_t windowOffset = 0;
  size_t windowBytes = 0;
  bool inPlace = false;
};

// A collective group of all ranks, and what they reduce in it, in that order.
struct GroupPlan {
  std::vector<OperationPlan> operations;
};

// An aggregation daemon: a process that comes after those of the ranks.
struct DaemonPlan {
  std::string address;  // of its first rail, with a port
  size_t window = 16;
};

enum class HurtKind : uint8_t {
  kill,           // the process ends
  stop,           // every thread of the process stands still for a while, or for ever
  pause,          // one of them does
  cut,            // the path of the control link between two ranks is down for a while
  railDies,       // the lanes of one rail of a rank break
  railSilent,     // they say nothing more
  abort,          // a rank closes a connection in the middle
  misuse,         // a rank sends more than its receiver has room for
  railGone,       // the lanes of one rail of a rank break, and it opens no others
  withdraw,       // a receiver takes memory away that a receive is posted to
  wrongTag,       // a rank's sends of a connection have another tag from then on
  railSlow,       // what the lanes of one rail of a rank carry comes late
  reset,          // over tcp: the connections of one rail of a rank are reset, or one of them
  railDown,       // over tcp: no packet of one rail of a rank arrives for a while, or ever
  noSockets,      // over tcp: a rank gets no descriptors for a while
  noRegistering,  // a rank's memory is not registered for a while: so many times
  noMemory,       // a rank gets no memory in the middle of a call
  leave,          // a rank closes a collective group in the middle
  another,        // a rank starts another operation in a collective group than the others
};

struct HurtPlan {
  HurtKind kind = HurtKind::kill;
  Nanoseconds at{};
  int rank = 0;
  // cut: the other rank; abort, misuse, withdraw, wrongTag: which flow; rails: which rail; pause: which
  // thread; leave, another: which group;
  // noRegistering, noMemory: how often or after how many requests
  int other = 0;
  Nanoseconds lasts{};
  bool onceFormed = false;  // `at` counts from when all ranks have formed their group
  std::string text() const;
};

enum class FabricKind : uint8_t { loop, tcp, local };

struct WorldPlan {
  uint64_t seed = 0;
  int ranks = 8;
  int communicators = 1;
  Config config;
  loop::LoopOptions fabric;
  TcpHabits tcp;            // in place of loop, if it is on
  bool localAlone = false;  // shared memory is in place of loop
  uint64_t localRanks =
      0;                   // a bit for each rank, modulo 64, that may share memory with its peers beside loop
  bool uneven = false;     // some ranks have fewer rails
  bool breakable = false;  // the fabric can be hurt
  Nanoseconds occupiedFor{};  // engines are, by a thread that loses its processor inside; 0: never
  Nanoseconds latency{};      // of the control network
  bool apart = false;         // each place of an end's messages is registered by itself
  Nanoseconds idle = std::chrono::milliseconds(3);  // most between two looks of a thread where nothing moves
  Nanoseconds endsAt{};     // all connections are aborted then; 0: they end when all is sent
  bool byWarnings = false;  // only what it warns of is judged, and by who made the plan
  bool rests = false;       // nobody closes before all have their messages, and all is quiet
  std::vector<FlowPlan> flows;
  std::vector<GroupPlan> groups;
  std::vector<DaemonPlan> daemons;
  std::vector<HurtPlan> hurts;
  int processes() const { return ranks + static_cast<int>(daemons.size()); }
  int hostOf(size_t daemon) const { return ranks + static_cast<int>(daemon); }
  bool isDaemon(int process) const { return process >= ranks; }
  // The one that a rank joins. The first of several is above the others.
  int railsOf(int rank) const { return uneven ? 1 + (rank * 5 + 1) % fabric.rails : fabric.rails; }
  bool hasLocal(int rank) const { return (localRanks >> (rank % 64) & 1) != 0; }
  int lanesOf(int rank) const { return std::min(railsOf(rank), config.maxRails); }
  std::string text() const;
};

struct PlanOptions {
  uint64_t seed = 1;
  int ranks = 8;
  size_t operations = 200;
  bool hurts = true;
  FabricKind fabric = FabricKind::loop;
  bool refusals = false;  // hurts are refused memory, too
  bool groups = false;    // beside connections, the ranks form collective groups
  bool daemons = false;   // and reduce in them by aggregation daemons
};

bool hurtsRail(const HurtPlan& hurt);
WorldPlan drawPlan(const PlanOptions& options);

}  // namespace weft::world
