// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/result.h"

// The file that sets what the environment leaves unset: lines of the form `NAME = value`, with the names of
// the environment; see weft.conf(5). Only its form is read here; which names there are is known to config.h.
namespace weft {

inline constexpr const char* kConfigFileVariable = "WEFT_CONF";
inline constexpr const char* kConfigFileDefault = "/etc/weft.conf";

struct ConfigFile {
  struct Entry {
    std::string value;
    int line = 0;
  };

  std::string path;  // empty: there is none
  std::map<std::string, Entry, std::less<>> entries;
  std::vector<std::string> repeated;  // one line for each name that stands there twice; the last counts

  const Entry* find(std::string_view name) const;
  std::string place(int line) const;  // "/etc/weft.conf:3"
};

// A line that is neither empty, a comment nor `NAME = value` is an error naming file and line.
Result<ConfigFile> parseConfigFile(std::string path, std::string_view text);

// The file that WEFT_CONF names, which must be readable; without the variable /etc/weft.conf, which may be
// missing. An empty WEFT_CONF means no file.
Result<ConfigFile> loadConfigFile(const std::function<const char*(const char* name)>& lookup);

}  // namespace weft
