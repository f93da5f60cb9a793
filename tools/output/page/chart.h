// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <utility>
#include <vector>

// Charts as parts of an SVG document. Colours are CSS variables that the document around them sets (page.h),
// so that one drawing serves a light and a dark page. Pure functions; any thread.
namespace weft {

constexpr double kChartWidth = 760;
constexpr double kChartHeight = 300;

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;
  bool line = true;  // or dots alone
  bool dashed = false;
  size_t colour = 0;
  bool dots = true;  // at the points of a line
};

// A range of values for each place on the horizontal axis.
struct Band {
  double x = 0;
  double low = 0;
  double high = 0;
};

struct Chart {
  std::string title;
  std::string across;  // the names of the axes
  std::string up;
  bool logarithmicUp = false;
  std::vector<Curve> curves;
  std::vector<Band> bands;
  bool linearAcross = false;  // else the horizontal axis has powers of two
};
std::string drawn(const Chart& chart, double top);

struct Bar {
  std::string name;
  std::vector<double> parts;  // stacked, or a single one that may be below 0
};
struct Bars {
  std::string title;
  std::vector<std::string> partNames;  // a legend; empty: none
  std::vector<Bar> bars;
};
std::string drawn(const Bars& bars, double top);
double heightOf(const Bars& bars);
double heightOf(const Chart& chart);

}  // namespace weft
