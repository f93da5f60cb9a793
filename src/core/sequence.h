// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>

// Numbers that wrap. The width is a setting so that tests can make them wrap every few messages; both ends of
// a connection must use the same one (it is in the fingerprint). Two numbers may be compared while they are
// less than half the range apart, which the limits on what is in flight guarantee. Values; any thread.
namespace weft::core {

class SequenceSpace {
 public:
  explicit SequenceSpace(int bits) : mask_(bits >= 32 ? ~uint32_t{0} : (uint32_t{1} << bits) - 1) {}

  uint32_t next(uint32_t n) const { return (n + 1) & mask_; }
  uint32_t distance(uint32_t from, uint32_t to) const { return (to - from) & mask_; }
  bool before(uint32_t a, uint32_t b) const { return a != b && distance(a, b) <= mask_ / 2; }

 private:
  uint32_t mask_;
};

}  // namespace weft::core
