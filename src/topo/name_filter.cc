// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/topo/name_filter.h"

#include <algorithm>
#include <charconv>

namespace weft::topo {

NameFilter::NameFilter(std::string_view text) {
  if (text.starts_with('^')) {
    exclude_ = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    exact_ = true;
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) items_.push_back(parseItem(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  if (items_.empty()) exclude_ = false;
}

// "mlx5_0:1" has a port; whatever follows a colon and is not a number belongs to the name.
NameFilter::Item NameFilter::parseItem(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return {std::string(text), 0};
  int port = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end || port <= 0) return {std::string(text), 0};
  return {std::string(text.substr(0, colon)), port};
}

bool NameFilter::names(std::string_view name, int port) const {
  return std::any_of(items_.begin(), items_.end(), [&](const Item& item) {
    if (item.port != 0 && item.port != port) return false;
    return exact_ ? name == item.name : name.starts_with(item.name);
  });
}

bool NameFilter::accepts(std::string_view name, int port) const {
  return items_.empty() || names(name, port) != exclude_;
}

}  // namespace weft::topo
