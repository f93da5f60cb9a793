// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tests/softefa/engine.h"

namespace softefa {

// The sending half of an opened NIC: turns posted work into packets and answers into completions.
// Guarded by the device's lock.
class Requester {
 public:
  explicit Requester(Engine& engine) : engine_(engine) {}

  void post(QueuePair& qp, const WorkRequest& work);
  // Sends what can be sent now; true if anything was. Never waits for a full inbox.
  bool pump(Clock::time_point now);
  void onAnswer(const PacketHeader& answer, Clock::time_point now);
  void onReadData(const PacketHeader& header, const std::byte* payload);
  // Gives up on peers that do not answer.
  void expire(Clock::time_point now);

  void flush(QueuePair& qp);   // everything outstanding ends as flushed
  void forget(QueuePair& qp);  // the same without completions

  bool idle() const { return messages_.empty(); }
  bool eager() const { return !sending_.empty(); }  // something waits for room in an inbox

 private:
  enum class Phase {
    sending,
    sent,
    waiting
  };  // waiting: before another attempt, or for a host that is not there

  struct Message {
    QueuePair* qp = nullptr;
    WorkRequest work;
    Phase phase = Phase::sending;
    uint64_t offset = 0;  // of the next packet
    uint64_t landed = 0;  // of a read
    uint32_t attempt = 0;
    bool hostMissing = false;
    bool silent = false;               // the application has its completion; only packets are on their way
    std::vector<std::byte> onTheWire;  // of a silent one: its bytes, which left the application's memory
    Clock::time_point started{};
    Clock::time_point retryAt{};
  };
  using Messages = std::map<uint32_t, Message>;
  enum class Step { more, blocked, ended };

  void strayAfter(const Message& message, std::chrono::microseconds time);
  Status check(const Message& message);
  Step sendPacket(uint32_t id, Message& message, Clock::time_point now);
  Step afterPacket(uint32_t id, Message& message, uint64_t length);
  Step failed(uint32_t id, Status status);
  bool gather(const Message& message, uint64_t length, std::array<Piece, kMaxReceiveSges>& pieces,
              size_t& count);
  bool scatter(const Message& message, uint64_t offset, const std::byte* payload, uint64_t length);
  void finish(Messages::iterator at, Status status);

  Engine& engine_;
  uint32_t nextId_ = 1;
  Messages messages_;
  std::vector<uint32_t> sending_;
};

}  // namespace softefa
