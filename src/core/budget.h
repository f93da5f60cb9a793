// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstdint>

// How many notifications may be on their way to an engine: each of its completion queues holds that many,
// and none may overflow. Told receives take of them, and so do the eager pools, at most half, as every slot
// may fill at any time. The pools' bytes are bounded too. Changed only inside the engine.
namespace weft::core {

class Budget {
 public:
  // Receives that stand for placed messages take a quarter at most, as they hold what they take for as long
  // as their comm lives.
  bool takeStanding(uint32_t notifications) {
    if (standingLeft_ < notifications || !take(notifications)) return false;
    standingLeft_ -= notifications;
    return true;
  }
  void giveBackStanding(uint32_t notifications) {
    standingLeft_ += notifications;
    giveBack(notifications);
  }

  // `notifications` that the shallowest completion queue holds; `eagerBytes` of all pools.
  void open(int64_t notifications, uint64_t eagerBytes) {
    left_ = notifications;
    eagerLeft_ = notifications / 2;
    standingLeft_ = notifications / 4;
    eagerBytesLeft_ = eagerBytes;
  }

  bool take(uint32_t notifications) {
    if (left_ < notifications) return false;
    left_ -= notifications;
    return true;
  }
  void giveBack(uint32_t notifications) { left_ += notifications; }

  // As many slots of the wanted as there is room for; each is one notification.
  uint32_t takeSlots(uint32_t wanted, uint32_t slotBytes) {
    if (slotBytes == 0) return 0;
    const auto room = static_cast<int64_t>(eagerBytesLeft_ / slotBytes);
    const auto slots =
        static_cast<uint32_t>(std::clamp<int64_t>(std::min({left_, eagerLeft_, room}), 0, wanted));
    left_ -= slots;
    eagerLeft_ -= slots;
    eagerBytesLeft_ -= uint64_t{slots} * slotBytes;
    return slots;
  }
  void giveBackSlots(uint32_t slots, uint32_t slotBytes) {
    left_ += slots;
    eagerLeft_ += slots;
    eagerBytesLeft_ += uint64_t{slots} * slotBytes;
  }

 private:
  int64_t left_ = 0;
  int64_t eagerLeft_ = 0;
  int64_t standingLeft_ = 0;
  uint64_t eagerBytesLeft_ = 0;
};

}  // namespace weft::core
