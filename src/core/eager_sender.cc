// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/eager_sender.h"

namespace weft::core {

bool EagerSender::refill() {
  if (!staging_ && room_ > 0 && (staging_ = source_.takeStaging()))
    mask_ = slots_ >= 64 ? ~uint64_t{0} : (uint64_t{1} << slots_) - 1;
  if (staging_) learnCredits();
  return freeSlots() != 0;
}

void EagerSender::learnCredits() {
  CreditRecord record;
  if (!credits_ || !readWhole(credits_, &record) || record.peering != number_) return;
  if (static_cast<int32_t>(record.sequence - creditsRead_) <= 0) return;  // an older one that came late
  creditsRead_ = record.sequence;
  freed_ = record.freed;
}

}  // namespace weft::core
