// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// The table of `weft top`, for a terminal of any width. Any thread.
namespace weft::counted {

struct TopRow {
  std::string place, peer, device;
  bool sends = false;
  double bytes = 0, messages = 0, busy = 0;  // a second; busy: a share
  double waits = 0;                          // seconds that the oldest request, or send, stands
  uint64_t inFlight = 0;
  uint64_t p99 = 0;                   // nanoseconds
  uint64_t checked = 0, corrupt = 0;  // since the comm began: messages whose sums were compared, and differed
};

// A head and the first `most` rows, each line of at most `width` characters; 0: as wide as it is. Where not
// all columns have room those go first that say least about a job that is slow.
std::string topTable(const std::vector<TopRow>& rows, size_t most, size_t width);

}  // namespace weft::counted
