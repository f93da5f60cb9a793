// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tests/softefa/engine.h"

namespace softefa {

// The receiving half of an opened NIC: lands what others send, answers them, and serves their reads.
// Guarded by the device's lock.
class Responder {
 public:
  explicit Responder(Engine& engine) : engine_(engine) {}

  // A packet that is no answer and no read data.
  void onPacket(const PacketHeader& header, const std::byte* payload, Clock::time_point now);
  // Sends answers and read data that wait for room; true if anything went.
  bool pump();
  void forgetOld(Clock::time_point now);  // parts of messages whose rest will not come

  void forget(const QueuePair& qp);  // it is destroyed
  bool eager() const { return !answers_.empty() || !reads_.empty(); }

 private:
  // A write of which some packets have come.
  struct Assembly {
    const QueuePair* qp = nullptr;  // null: it is gone
    uint64_t received = 0;
    bool failed = false;
    Clock::time_point lastPart{};
  };
  // Where a write goes, for the strict check of overlaps.
  struct Footprint {
    uint64_t address = 0;
    uint64_t length = 0;
  };
  // Those of one queue pair that began to land last, by message.
  struct Footprints {
    std::map<uint32_t, Footprint> writes;
    Clock::time_point lastPart{};
  };
  using Key = std::pair<uint64_t, std::pair<uint32_t, uint32_t>>;  // opening, message, attempt
  using Assemblies = std::map<Key, Assembly>;
  static Key keyOf(const PacketHeader& header) { return {header.sender, {header.messageId, header.attempt}}; }
  struct ReadJob {
    PacketHeader request;
    uint64_t offset = 0;
  };

  void breakOff(Assemblies::iterator begun, const PacketHeader& header);
  void onSend(QueuePair& qp, const PacketHeader& header, const std::byte* payload);
  void onWrite(QueuePair& qp, const PacketHeader& header, const std::byte* payload, Clock::time_point now);
  void onReadRequest(QueuePair& qp, const PacketHeader& header);
  Status landWrite(QueuePair& qp, const PacketHeader& header, const std::byte* payload);
  void checkOverlap(const PacketHeader& header);
  Status notify(QueuePair& qp, const PacketHeader& header);
  Regions::Found findRemote(const QueuePair& qp, const PacketHeader& header, uint64_t offset, uint64_t length,
                            unsigned access);
  std::optional<Status> stranger(const QueuePair& qp, const PacketHeader& header);
  Status place(QueuePair& qp, const ReceiveWork& work, uint64_t skip, const std::byte* payload,
               uint64_t length);
  void completeReceive(QueuePair& qp, const PacketHeader& header, const ReceiveWork& work, Status status,
                       uint32_t length);
  void copyIn(std::byte* target, const std::byte* source, uint64_t length) const;
  void answer(const PacketHeader& header, Status status);
  bool sendReadData(ReadJob& job, bool& done);

  Engine& engine_;
  Assemblies assemblies_;
  std::map<std::pair<uint64_t, uint32_t>, Footprints> footprints_;  // by opening and queue pair
  std::vector<std::pair<Gid, PacketHeader>> answers_;
  std::deque<ReadJob> reads_;
};

}  // namespace softefa
