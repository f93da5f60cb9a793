// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/plot.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "tools/output/words.h"

namespace weft::perf {

namespace {

constexpr double kWidth = 900;
constexpr double kLeft = 80;
constexpr double kRight = 20;
constexpr double kPanelHeight = 300;
constexpr double kTop = 60;
constexpr double kGap = 60;
constexpr double kLegendLine = 18;
constexpr double kLegendSample = 48;  // of a line, wide enough for its dashes
constexpr std::array kColours = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                 "#ff7f0e", "#17becf", "#8c564b", "#e377c2"};

// After the last colour they begin again with dashes, then with a dot between the dashes, and so on.
std::string strokeOf(size_t number) {
  std::string stroke = fmt::format("stroke=\"{}\"", kColours[number % kColours.size()]);
  const size_t round = number / kColours.size();
  if (round == 0) return stroke;
  stroke += " stroke-dasharray=\"7 3";
  for (size_t dot = 1; dot < round; ++dot) stroke += " 1 3";
  return stroke + "\"";
}

struct Point {
  double bytes;
  double value;
};

struct Series {
  std::string name;
  std::vector<Point> bandwidth;  // GB/s
  std::vector<Point> latency;    // microseconds, half of all iterations took no longer
};

// A range that begins and ends at whole powers of a base.
struct LogAxis {
  double base = 10;
  int first = 0;  // exponents
  int last = 1;

  LogAxis(double axisBase, double low, double high)
      : base(axisBase),
        first(static_cast<int>(std::floor(std::log(low) / std::log(axisBase) + 1e-9))),
        last(std::max(first + 1, static_cast<int>(std::ceil(std::log(high) / std::log(axisBase) - 1e-9)))) {}
  // 0 at the beginning, 1 at the end.
  double place(double value) const { return (std::log(value) / std::log(base) - first) / (last - first); }
};

std::string sizeName(double bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"", "K", "M", "G", "T"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return fmt::format("{:g}{}", bytes, kUnits[unit]);
}

std::string label(double x, double y, const char* anchor, const std::string& text, int size = 12) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\">{}</text>\n", x, y,
                     anchor, size, escapedMarkup(text));
}

std::string gridLine(double x1, double y1, double x2, double y2) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", x1,
                     y1, x2, y2);
}

// Each type, reduction, place and plugin has a curve. A logarithm has no place for 0.
void addPoint(std::vector<Series>* all, const std::string& name, const Results& results, const Row& row,
              const Sample& sample) {
  auto at = std::find_if(all->begin(), all->end(), [&](const Series& s) { return s.name == name; });
  if (at == all->end()) at = all->insert(all->end(), Series{name, {}, {}});
  const auto bytes = static_cast<double>(row.bytes);
  const double bus = results.busGBps(row, sample);
  const double latency = static_cast<double>(sample.latency.quantile(0.5)) / 1e3;
  if (bytes > 0 && bus > 0) at->bandwidth.push_back({bytes, bus});
  if (bytes > 0 && latency > 0) at->latency.push_back({bytes, latency});
}

std::string hostsText(const Conditions& conditions) {
  const auto& names = conditions.names;
  if (names.size() < 2) return conditions.host;
  return names.size() == 2 ? names[0] + " and " + names[1] : fmt::format("{} hosts", names.size());
}

// "libnccl-net-weft.so" and the other one; with their folders where they have the same name.
std::pair<std::string, std::string> pluginNames(const Conditions& conditions) {
  const auto last = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  if (last(conditions.plugin) == last(conditions.other)) return {conditions.plugin, conditions.other};
  return {last(conditions.plugin), last(conditions.other)};
}

std::vector<Series> seriesOf(const Results& results) {
  std::vector<Series> all;
  for (const Row& row : results.rows) {
    for (const auto& [place, half] : halvesOf(row)) {
      const std::string kind = std::string(place) == "in_place" ? "in place" : "out of place";
      const std::string name = fmt::format("{} {}, {}", row.type, row.redop, kind);
      const auto [first, other] = pluginNames(results.conditions);
      addPoint(&all, half->other ? name + ", " + first : name, results, row, half->sample);
      if (half->other) addPoint(&all, name + ", " + other, results, row, *half->other);
    }
  }
  return all;
}

class Panel {
 public:
  Panel(double top, std::string title, LogAxis x, LogAxis y)
      : top_(top), title_(std::move(title)), x_(x), y_(y) {}

  std::string frame() const {
    std::string text = label(kLeft, top_ - 10, "start", title_, 14);
    const int step = (x_.last - x_.first) / 14 + 1;  // labels must not run into each other
    for (int e = x_.first; e <= x_.last; e += step) {
      const double value = std::pow(x_.base, e);
      text += gridLine(across(value), top_, across(value), top_ + kPanelHeight);
      text += label(across(value), top_ + kPanelHeight + 16, "middle", sizeName(value));
    }
    for (int e = y_.first; e <= y_.last; ++e) {
      const double value = std::pow(y_.base, e);
      text += gridLine(kLeft, up(value), kWidth - kRight, up(value));
      text += label(kLeft - 8, up(value) + 4, "end", fmt::format("{:g}", value));
    }
    return text +
           fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#444\"/>\n",
                       kLeft, top_, kWidth - kLeft - kRight, kPanelHeight);
  }

  std::string curve(const std::vector<Point>& points, size_t number) const {
    const char* colour = kColours[number % kColours.size()];
    std::string line;
    std::string dots;
    for (const Point& p : points) {
      line += fmt::format("{:.1f},{:.1f} ", across(p.bytes), up(p.value));
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n", across(p.bytes),
                          up(p.value), colour);
    }
    return fmt::format("<polyline points=\"{}\" fill=\"none\" {} stroke-width=\"1.5\"/>\n", line,
                       strokeOf(number)) +
           dots;
  }

 private:
  double across(double bytes) const { return kLeft + x_.place(bytes) * (kWidth - kLeft - kRight); }
  double up(double value) const { return top_ + (1 - y_.place(value)) * kPanelHeight; }

  double top_;
  std::string title_;
  LogAxis x_;
  LogAxis y_;
};

// `what` of all series; an axis needs something even if nothing was measured.
std::vector<Point> allPoints(const std::vector<Series>& all, std::vector<Point> Series::*what) {
  std::vector<Point> points;
  for (const Series& series : all) points.insert(points.end(), (series.*what).begin(), (series.*what).end());
  if (points.empty()) points.push_back({1, 1});
  return points;
}

std::string panelOf(const std::vector<Series>& all, std::vector<Point> Series::*what, double top,
                    const char* title) {
  const auto points = allPoints(all, what);
  const auto [left, right] = std::minmax_element(
      points.begin(), points.end(), [](const Point& a, const Point& b) { return a.bytes < b.bytes; });
  const auto [low, high] = std::minmax_element(
      points.begin(), points.end(), [](const Point& a, const Point& b) { return a.value < b.value; });
  const Panel panel(top, title, LogAxis(2, left->bytes, right->bytes), LogAxis(10, low->value, high->value));
  std::string text = panel.frame();
  for (size_t i = 0; i < all.size(); ++i) text += panel.curve(all[i].*what, i);
  return text;
}

std::string legendOf(const std::vector<Series>& all, double top) {
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    const double y = top + static_cast<double>(i) * kLegendLine;
    text += fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" {} stroke-width=\"3\"/>\n",
                        kLeft, y - 4, kLeft + kLegendSample, y - 4, strokeOf(i));
    text += label(kLeft + kLegendSample + 8, y, "start", all[i].name);
  }
  return text;
}

}  // namespace

std::string plotDocument(const Results& results) {
  const std::vector<Series> all = seriesOf(results);
  const double second = kTop + kPanelHeight + kGap;
  const double legend = second + kPanelHeight + kGap;
  const double height = legend + static_cast<double>(all.size()) * kLegendLine;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, height);
  text += label(kWidth / 2, 24, "middle",
                fmt::format("weft perf {} ({}), {} ranks on {}, {}, {}{}", results.operation->name,
                            results.operation->algorithm, results.size, hostsText(results.conditions),
                            results.conditions.date, results.conditions.table,
                            results.endedBy.empty() ? "" : ", incomplete"),
                16);
  text += panelOf(all, &Series::bandwidth, kTop, "bus bandwidth (GB/s) over size (bytes)");
  text += panelOf(all, &Series::latency, second, "median latency (us) over size (bytes)");
  return text + legendOf(all, legend) + "</svg>\n";
}

}  // namespace weft::perf
