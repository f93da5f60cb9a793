// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/net/address.h"
#include "weft/result.h"

// The host as the checks see it: files of the kernel below a root, and the few facts that no file tells.
// Tests hand in another root and other answers, so that each check meets the bad state it is for. Read only;
// any thread.
namespace weft::doctor {

// A file system's size and what is free of it.
struct Space {
  uint64_t bytes = 0;
  uint64_t free = 0;
};

// An address of an interface and the length of its subnet's prefix.
struct HostAddress {
  std::string interface;
  SocketAddress address;
  int prefix = 0;
  bool loopback = false;
};

struct World {
  std::string root;  // in front of /proc, /sys, /dev and /etc; empty except in tests
  std::function<std::optional<Space>(const std::string& path)> space;
  std::function<Result<std::vector<HostAddress>>()> addresses;  // of interfaces that are up
  std::map<std::string, std::string> environment;
  std::string home;  // the user's, by the user database; empty: unknown

  std::string path(std::string_view below) const { return root + std::string(below); }
  // The whole file, or nothing where it cannot be read.
  std::optional<std::string> text(std::string_view below) const;
  // Its one line without the end; empty where it cannot be read.
  std::string line(std::string_view below) const;
  std::optional<int64_t> number(std::string_view below) const;  // that the line begins with
  // The names in a folder, sorted; empty where there is none.
  std::vector<std::string> names(std::string_view below) const;
  // The place behind all links, without the root; empty where there is none.
  std::string resolved(std::string_view below) const;

  const std::string* setting(const std::string& name) const;  // null: unset
  std::optional<int64_t> settingNumber(const std::string& name) const;
};

// This host, in the environment of this process.
World thisWorld();

// Parts of a text between blanks, and its lines.
std::vector<std::string> words(std::string_view text);
std::vector<std::string> lines(std::string_view text);

// "64 MiB", "1.5 GiB".
std::string sizeText(uint64_t bytes);

}  // namespace weft::doctor
