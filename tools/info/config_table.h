// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "src/base/config.h"
#include "tools/json/json.h"

// The table of settings as text for people, as a page of the documentation, as a file to start from, and as
// JSON. Pure functions of their arguments; page and file leave out effective values, so that they are the
// same everywhere.
namespace weft::info {

// Settings in effect, and what each came from.
struct Settings {
  Config config;
  ConfigFile file;
  Lookup environment;
};

std::string configText(const Settings& settings);
std::string configMarkdown();
std::string configSample();  // a weft.conf in which everything is a comment
Json configJson(const Settings& settings);

}  // namespace weft::info
