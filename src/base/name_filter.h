// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// The interfaces or fabric devices that the user wants, in the syntax of NCCL: a comma list of name prefixes;
// "^" in front excludes them, "=" wants exact names ("^=" both); ":port" after a name where a device has
// several ports. NCCL's ":rail:plane" behind the port is ignored. An empty filter accepts everything.
// Immutable value; any thread.
namespace weft {

class NameFilter {
 public:
  // The meaning of a colon in a name: the port of a device, or nothing ("eth0:1" is a label of an interface).
  enum class Colon : uint8_t { port, plain };

  explicit NameFilter(std::string_view text, Colon colon = Colon::port);

  bool empty() const { return items_.empty(); }
  bool excludes() const { return exclude_; }

  // True where the device may be used. `port` is compared only where the filter names a port.
  bool accepts(std::string_view name, int port = 1) const;

  // True where an item names the device, also in an exclusion: a name is stronger than a default.
  bool names(std::string_view name, int port = 1) const;

 private:
  struct Item {
    std::string name;
    int port;  // 0: any
  };
  static Item parseItem(std::string_view text);

  std::vector<Item> items_;
  bool exclude_ = false;
  bool exact_ = false;
};

// The reason in words why a filter's setting leaves a device out. `settings`: its names; `value`: the user's.
std::string leftOutBy(const char* settings, const std::string& value);

// True where an interface is a bridge for containers or virtual machines of this host. The bridge has the
// same address on every host that has one, and leads to none of them.
bool isContainerBridge(std::string_view interface);

}  // namespace weft
