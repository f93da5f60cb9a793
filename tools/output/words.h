// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Text as a terminal or a browser shows it. Any thread.
namespace weft {

// `text` in lines of at most `width` characters, cut between words, each behind `indent`. A word that is
// longer than a line is cut as well.
std::string wrapped(std::string_view text, size_t width, std::string_view indent);

// `text` inside an element or an attribute of HTML or SVG.
std::string escapedMarkup(std::string_view text);

}  // namespace weft
