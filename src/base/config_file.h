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
// the environment; see weft.conf(5). Only the form is read here; config.h knows the names. Values; any
// thread.
namespace weft {

inline constexpr const char* kConfigFileVariable = "WEFT_CONF";
inline constexpr const char* kConfigFileDefault = "/etc/weft.conf";

struct ConfigFile {
  struct Entry {
    std::string value;
    int line = 0;
  };

  std::string path;  // empty: there is no file
  std::map<std::string, Entry, std::less<>> entries;
  std::vector<std::string> repeated;  // a line for each name that occurs twice; the last value counts

  const Entry* find(std::string_view name) const;
  std::string place(int line) const;  // "/etc/weft.conf:3"
};

// An error names file and line: a line has to be empty, a comment, or `NAME = value`.
Result<ConfigFile> parseConfigFile(std::string path, std::string_view text);

// The file that WEFT_CONF names, which has to be readable; without the variable /etc/weft.conf, which may be
// missing. An empty WEFT_CONF means no file.
Result<ConfigFile> loadConfigFile(const std::function<const char*(const char* name)>& lookup);

}  // namespace weft
