// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/rma/exchange.h"

#include <algorithm>

// The rounds of an exchange.
namespace weft::rma {

void Exchange::put(uint32_t rank, const Descriptor& descriptor) {
  all_[rank] = descriptor;
  here_[rank] = true;
  while (have_ < all_.size() && here_[wrapped(rank_ + have_)]) have_++;
}

bool Exchange::take(uint64_t rank, const Descriptor& descriptor) {
  if (rank >= all_.size() || here_[rank]) return false;
  put(static_cast<uint32_t>(rank), descriptor);
  return true;
}

std::optional<Exchange::Round> Exchange::nextRound() {
  const size_t ranks = all_.size();
  if (reach_ >= ranks) return std::nullopt;
  const size_t count = std::min(reach_, ranks - reach_);
  if (have_ < count) return std::nullopt;
  const Round round{wrapped(rank_ + ranks - reach_), rank_, static_cast<uint32_t>(count)};
  reach_ *= 2;
  return round;
}

uint32_t Exchange::missing() const {
  return wrapped(rank_ + have_);
}

}  // namespace weft::rma
