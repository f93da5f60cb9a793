// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/name_filter.h"

#include <algorithm>

#include "src/base/number.h"

// Parsing and matching of NCCL's lists of names.
namespace weft {

// "^" before "=", as NCCL reads them.
NameFilter::NameFilter(std::string_view text, Colon colon) {
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
    const std::string_view item = text.substr(0, comma);
    if (!item.empty()) items_.push_back(colon == Colon::port ? parseItem(item) : Item{std::string(item), 0});
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  if (items_.empty()) exclude_ = false;
}

// "mlx5_0:1" has a port. NCCL's "mlx5_0:1:0:0" has a rail and a plane behind it, for NCCL's own search for
// paths. A part may be empty. Where a part is no number, the whole text is a name.
NameFilter::Item NameFilter::parseItem(std::string_view text) {
  const size_t colon = std::min(text.find(':'), text.size());
  std::string_view rest = text.substr(colon);
  int port = 0;
  for (int part = 0; !rest.empty(); part++) {
    rest.remove_prefix(1);
    const std::string_view digits = rest.substr(0, rest.find(':'));
    rest.remove_prefix(digits.size());
    const auto number = digits.empty() ? 0 : parseNumber<int>(digits);
    if (!number || *number < 0) return {std::string(text), 0};
    if (part == 0) port = *number;
  }
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

bool isContainerBridge(std::string_view interface) {
  return interface.starts_with("docker") || interface.starts_with("virbr");
}

std::string leftOutBy(const char* settings, const std::string& value) {
  return std::string(settings) + " is \"" + value + "\" and leaves it out";
}

}  // namespace weft
