// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstdint>

// How many notifications may be on their way to an engine: each of its completion queues holds that many,
// and none may overflow. Told receives take of them, and so do the eager pools, at most half, as every slot
// may fill at any time. The pools' bytes are bounded too. What a told receive takes comes back with its
// message, which may have to wait for the message of another comm. So up to a quarter is kept for comms that
// have no receive told: however many another one has posted, the oldest receive of each can be. Changed only
// inside the engine.
namespace weft::core {

class Budget {
 public:
  // A receiving comm's part in it; changed here alone.
  struct Share {
    uint32_t each = 0;  // notifications of a receive; 0: it is not open
    uint32_t told = 0;  // its receives that were told and are not filled
  };

  // Receives that stand for placed messages take a quarter at most, as they hold what they take for as long
  // as their comm lives.
  bool takeStanding(uint32_t notifications) {
    if (standingLeft_ < notifications || left_ - notifications < kept()) return false;
    standingLeft_ -= notifications;
    left_ -= notifications;
    return true;
  }
  void giveBackStanding(uint32_t notifications) {
    standingLeft_ += notifications;
    left_ += notifications;
  }

  // `notifications` that the shallowest completion queue holds; `eagerBytes` of all pools.
  void open(int64_t notifications, uint64_t eagerBytes) {
    left_ = notifications;
    eagerLeft_ = notifications / 2;
    standingLeft_ = notifications / 4;
    mostKept_ = notifications / 4;
    eagerBytesLeft_ = eagerBytes;
  }

  // A comm whose receives take so many each; again is harmless.
  void open(Share* share, uint32_t each) {
    if (share->each > 0) return;
    share->each = each;
    untold_ += each;
  }
  // None of its receives is told any more.
  void close(Share* share) {
    untold_ -= share->each;
    *share = Share();
  }
  bool mayTake(const Share& share) const { return left_ - share.each >= (share.told > 0 ? kept() : 0); }
  bool take(Share* share) {
    if (!mayTake(*share)) [[unlikely]]
      return false;
    left_ -= share->each;
    if (share->told++ == 0) untold_ -= share->each;
    return true;
  }
  void giveBack(Share* share) {
    left_ += share->each;
    if (--share->told == 0) untold_ += share->each;
  }

  // As many slots of the wanted as there is room for; each is one notification.
  uint32_t takeSlots(uint32_t wanted, uint32_t slotBytes) {
    if (slotBytes == 0) return 0;
    const auto room = static_cast<int64_t>(eagerBytesLeft_ / slotBytes);
    const auto slots =
        static_cast<uint32_t>(std::clamp<int64_t>(std::min({left_ - kept(), eagerLeft_, room}), 0, wanted));
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
  int64_t kept() const { return std::min(untold_, mostKept_); }

  int64_t left_ = 0;
  int64_t untold_ = 0;  // what one receive of each comm takes that has none told
  int64_t mostKept_ = 0;
  int64_t eagerLeft_ = 0;
  int64_t standingLeft_ = 0;
  uint64_t eagerBytesLeft_ = 0;
};

}  // namespace weft::core
