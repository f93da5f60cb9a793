// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/output/words.h"

namespace weft {

std::string wrapped(std::string_view text, size_t width, std::string_view indent) {
  std::string lines;
  while (!text.empty()) {
    size_t end = text.size();
    if (end > width) {
      const size_t blank = text.rfind(' ', width);
      end = blank == std::string_view::npos || blank == 0 ? width : blank;
    }
    lines.append(indent).append(text.substr(0, end)) += '\n';
    text.remove_prefix(end);
    if (text.starts_with(' ')) text.remove_prefix(1);
  }
  return lines;
}

std::string escapedMarkup(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c;
  }
  return result;
}

}  // namespace weft
