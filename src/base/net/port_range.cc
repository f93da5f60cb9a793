// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/net/port_range.h"

#include <string_view>

#include "src/base/number.h"

namespace weft {

Result<PortRange> parsePortRange(const std::string& text) {
  if (text.empty()) return PortRange{};
  const size_t dash = text.find('-');
  const std::string_view all = text;
  const auto first = parseNumber<uint16_t>(all.substr(0, dash));
  const auto last = dash == std::string::npos ? first : parseNumber<uint16_t>(all.substr(dash + 1));
  if (first && last && *first > 0 && *first <= *last) return PortRange{*first, *last};
  return Error(Code::config, "reading settings",
               "WEFT_PORT_RANGE is \"" + text + "\"; allowed: FIRST-LAST, as in 20000-20999");
}

}  // namespace weft
