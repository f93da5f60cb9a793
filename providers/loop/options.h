// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "providers/loop/card.h"
#include "src/base/config.h"
#include "weft/transport.h"

// How the in-process fabric behaves. The default is friendly: a write lands while it is posted and completes
// afterwards. Everything a real fabric was seen to do worse can be switched on, alone or together. Values;
// tests fill them by hand, WEFT_PROVIDER by text: "loop(landing=poll,delivery=accepted,seed=7)".
namespace weft::loop {

constexpr int kMaxRails = 32;

// Events of one rail, counted over all Queues of the Transport. Any thread may read at any time.
struct RailStats {
  std::atomic<uint64_t> works{0};          // taken by post
  std::atomic<uint64_t> bytes{0};          // landed
  std::atomic<uint64_t> notifications{0};  // handed out by poll
  std::atomic<uint64_t> overruns{0};       // notifications above what the target's Queue was opened for
  std::atomic<uint64_t> outOfOrder{0};     // finished before an older one
  std::atomic<uint64_t> errors{0};         // works that failed: bad key, out of range, peer gone
  std::atomic<uint64_t> handedOut{0};      // completions
  std::atomic<uint64_t> cancelled{0};      // works taken back by retire or close before they landed
};

struct LoopStats {
  std::array<RailStats, kMaxRails> rails;
};

enum class Landing : uint8_t {
  atOnce,      // in the sender's post
  whenPolled,  // only when the target polls its Queue
};

struct LoopOptions {
  int rails = 1;
  uint64_t seed = 1;  // of every choice below
  Landing landing = Landing::atOnce;
  Delivery delivery = Delivery::always;  // accepted and selectable complete before landing

  // These need Landing::whenPolled.
  bool shuffle = false;              // works land in random order
  size_t pieceBytes = 0;             // works land in pieces of this size, in shuffled order; 0: whole
  uint32_t piecesPerPoll = 8;        // with pieceBytes: how many land in one poll
  std::vector<size_t> bytesPerPoll;  // by rail: a rail's speed; missing or 0: unlimited
  // By rail: works land when its card says so, in that order. None: they take no time. Not by text.
  std::vector<std::shared_ptr<Card>> cards;
  size_t mostCopied =
      ~size_t{0};  // the bytes of a larger write stay where they are; its addresses are checked

  bool silentFailures = false;  // a work that completed before landing and then fails is never mentioned
  bool announceClose = false;   // the peer of a destroyed Endpoint gets `broken`
  bool lines128InOrder = false;
  bool postIsCall = false;      // small messages that follow each other are posted together, as over sockets
  bool messages = false;        // Opcode::message works; one lands when the target polls, as over sockets
  bool targetMustKnow = false;  // a lane stands once its peer connected to it, as on EFA's direct fabric
  QueueDepths maxDepths{1u << 16, 1u << 18};  // the most that openQueue grants
  size_t maxWriteBytes = size_t{1} << 30;
  int speedMbps = 100000;
  std::shared_ptr<LoopStats> stats;  // where to count; made by the Transport when null

  bool deferred() const { return landing == Landing::whenPolled; }
  bool transfers() const { return deferred() || messages; }  // something waits for the target's poll
};

// "key=value,key=value"; an empty text gives the defaults with config.loopRails rails. An error names the
// bad key and what is allowed.
Result<LoopOptions> parseOptions(const std::string& text, const Config& config);

}  // namespace weft::loop
