// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <string_view>

#include "tools/output/page/chart.h"

// A page for a browser in a file of its own: charts in the page itself, nothing from the network, colours for
// light and for dark screens, and room for narrow ones. The page is well-formed XML as well. Values; any
// thread.
namespace weft {

// Charts below each other.
class Drawing {
 public:
  void add(const Chart& chart);
  void add(const Bars& bars);
  bool empty() const { return charts_.empty(); }

  std::string inPage() const;   // an element of a page
  std::string ownFile() const;  // an SVG file, with the colours in it

 private:
  std::string svg(const std::string& style) const;

  std::string charts_;
  double height_ = 8;
};

// A whole page: its title is its heading, too. `body` is markup.
std::string pageOf(std::string_view title, const std::string& body);

}  // namespace weft
