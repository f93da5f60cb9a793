// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>

#include "weft/result.h"

// The ports that listeners may have, so that a firewall can let exactly these in: WEFT_PORT_RANGE. A value;
// any thread.
namespace weft {

struct PortRange {
  uint16_t first = 0;
  uint16_t last = 0;  // 0: whatever the kernel gives

  bool any() const { return last == 0; }
  int count() const { return last - first + 1; }
  std::string text() const { return std::to_string(first) + "-" + std::to_string(last); }
};

// "20000-20999"; empty text is any. The error names the setting and what it should be.
Result<PortRange> parsePortRange(const std::string& text);

}  // namespace weft
