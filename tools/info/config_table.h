// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "src/base/config.h"
#include "tools/json/json.h"

// The table of settings as text for people, as a page of the documentation, and as JSON. Pure functions of
// their arguments; only the page leaves out effective values, so that it is the same everywhere.
namespace weft::info {

std::string configText(const Config& config);
std::string configMarkdown();
Json configJson(const Config& config);

}  // namespace weft::info
