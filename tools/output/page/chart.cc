// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/output/page/chart.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tools/output/words.h"

namespace weft {

namespace {

constexpr double kLeft = 70;
constexpr double kRight = 20;
constexpr double kHead = 30;
constexpr double kFoot = 44;
constexpr double kPlotHeight = kChartHeight - kHead - kFoot;
constexpr double kLegendHeight = 18;
constexpr double kBarHeight = 20;
constexpr double kBarLeft = 150;
constexpr size_t kColours = 6;
constexpr double kNarrow = 0.8;  // the least over the largest value of a chart that does not begin at 0

std::string colourOf(size_t number) {
  return fmt::format("var(--c{})", number % kColours);
}

std::string labelAt(double x, double y, const char* anchor, const std::string& text, int size = 12) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"var(--ink)\">{}</text>\n",
      x, y, anchor, size, escapedMarkup(text));
}

std::string lineAt(double x1, double y1, double x2, double y2) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"var(--grid)\"/>\n", x1, y1, x2,
      y2);
}

struct Range {
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

// The step between lines of a linear axis: 1, 2 or 5 times a power of ten.
double stepOfAxis(double length) {
  const double power = std::pow(10, std::floor(std::log10(length / 4)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (length / (factor * power) <= 6) return factor * power;
  return 10 * power;
}

// 1000 is 1k, so that no label is wider than its place.
std::string shortNumber(double value) {
  constexpr std::pair<double, const char*> kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, letter] : kUnits)
    if (value >= 10 * unit || (unit > 1e3 && value >= unit))
      return fmt::format("{:.4g}{}", value / unit, letter);
  return fmt::format("{:.4g}", std::abs(value) < 1e-9 ? 0 : value);
}

// From values to places on the page.
class Scale {
 public:
  Scale(const Chart& chart, double top)
      : top_(top + kHead), logarithmic_(chart.logarithmicUp), linearAcross_(chart.linearAcross) {
    for (const Curve& curve : chart.curves)
      for (const auto& [x, y] : curve.points) {
        x_.take(place(x));
        y_.take(logarithmic_ ? std::log10(std::max(y, 1e-12)) : y);
      }
    for (const Band& band : chart.bands) {
      y_.take(band.low);
      y_.take(band.high);
    }
    if (!(x_.high > x_.low)) x_ = {x_.low - 0.5, x_.low + 0.5};
    // Values that differ little are shown without what lies below all of them.
    if (!logarithmic_ && y_.low < kNarrow * y_.high) y_.low = std::min(0.0, y_.low);
    if (logarithmic_) y_ = {std::floor(y_.low), std::ceil(y_.high)};
    if (!(y_.high > y_.low)) y_.high = y_.low + 1;
    if (logarithmic_) return;
    step_ = stepOfAxis(y_.high - y_.low);  // the axis begins and ends with a line around all values
    y_.low = std::floor(y_.low / step_ + 1e-9) * step_;
    y_.high = std::ceil(y_.high / step_ - 1e-9) * step_;
  }
  double across(double x) const {
    return kLeft + (place(x) - x_.low) / (x_.high - x_.low) * (kChartWidth - kLeft - kRight);
  }
  double up(double y) const {
    const double value = logarithmic_ ? std::log10(std::max(y, 1e-12)) : y;
    return top_ + (1 - (value - y_.low) / (y_.high - y_.low)) * kPlotHeight;
  }
  std::string grid() const {
    std::string text;
    const double step = linearAcross_ ? stepOfAxis(x_.high - x_.low) : 1;
    for (double x = std::ceil(x_.low / step) * step; x <= x_.high + 1e-9 * step; x += step) {
      const double value = linearAcross_ ? x : std::exp2(x);
      text += lineAt(across(value), top_, across(value), top_ + kPlotHeight);
      text += labelAt(across(value), top_ + kPlotHeight + 16, "middle",
                      fmt::format("{:g}", std::abs(value) < 1e-9 * step ? 0 : value), 11);
    }
    for (double y = std::ceil(y_.low / step_) * step_; y <= y_.high + 1e-9 * step_; y += step_) {
      const double value = logarithmic_ ? std::pow(10, y) : y;
      text += lineAt(kLeft, up(value), kChartWidth - kRight, up(value));
      text += labelAt(kLeft - 6, up(value) + 4, "end", shortNumber(value), 11);
    }
    return text;
  }

 private:
  double place(double x) const { return linearAcross_ ? x : std::log2(x); }

  double top_;
  bool logarithmic_;
  bool linearAcross_;
  double step_ = 1;  // between lines of the vertical axis; of a logarithmic one, in powers of ten
  Range x_;
  Range y_;
};

std::string curveText(const Scale& scale, const Curve& curve) {
  std::string line;
  std::string dots;
  for (const auto& [x, y] : curve.points) {
    line += fmt::format("{:.1f},{:.1f} ", scale.across(x), scale.up(y));
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", scale.across(x),
                        scale.up(y), curve.line ? 2 : 4, colourOf(curve.colour));
  }
  if (!curve.line) return dots;
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{}/>\n", line,
                     colourOf(curve.colour), curve.dashed ? " stroke-dasharray=\"6 4\"" : "") +
         (curve.dashed || !curve.dots ? "" : dots);
}

struct Entry {
  std::string name;
  size_t colour;
};

// In as many rows as it takes, `top` is that of the first.
struct Legend {
  std::string text;
  double height = 0;
};

Legend legendOf(const std::vector<Entry>& entries, double top) {
  Legend legend;
  double x = kLeft;
  if (!entries.empty()) legend.height = kLegendHeight;
  for (const Entry& entry : entries) {
    const double width = 32 + 6.6 * static_cast<double>(entry.name.size());
    if (x > kLeft && x + width > kChartWidth - kRight) {
      x = kLeft;
      legend.height += kLegendHeight;
    }
    const double y = top + legend.height - kLegendHeight;
    legend.text += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n",
                               x, y, colourOf(entry.colour));
    legend.text += labelAt(x + 17, y + 10, "start", entry.name, 11);
    x += width;
  }
  return legend;
}

std::vector<Entry> entriesOf(const Chart& chart) {
  std::vector<Entry> entries;
  for (const Curve& curve : chart.curves) entries.push_back({curve.name, curve.colour});
  return entries;
}

std::vector<Entry> entriesOf(const Bars& bars) {
  std::vector<Entry> entries;
  for (const std::string& name : bars.partNames) entries.push_back({name, entries.size()});
  return entries;
}

}  // namespace

double heightOf(const Chart& chart) {
  return kChartHeight + legendOf(entriesOf(chart), 0).height;
}

std::string drawn(const Chart& chart, double top) {
  const Scale scale(chart, top);
  std::string text = labelAt(kLeft, top + 18, "start", chart.title, 14) + scale.grid();
  std::string there;
  std::string back;
  for (const Band& band : chart.bands) {
    there += fmt::format("{:.1f},{:.1f} ", scale.across(band.x), scale.up(band.high));
    back.insert(0, fmt::format("{:.1f},{:.1f} ", scale.across(band.x), scale.up(band.low)));
  }
  if (!there.empty())
    text += fmt::format("<polygon points=\"{}{}\" fill=\"var(--c0)\" opacity=\"0.25\"/>\n", there, back);
  for (const Curve& curve : chart.curves) text += curveText(scale, curve);
  text += labelAt(kChartWidth - kRight, top + kHead + kPlotHeight + 32, "end", chart.across, 11);
  text += labelAt(kChartWidth - kRight, top + 18, "end", chart.up, 11);
  return text + legendOf(entriesOf(chart), top + kChartHeight - 4).text;
}

double heightOf(const Bars& bars) {
  return kHead + kBarHeight * static_cast<double>(bars.bars.size()) + legendOf(entriesOf(bars), 0).height +
         16;
}

std::string drawn(const Bars& bars, double top) {
  Range range;
  range.take(0);
  for (const Bar& bar : bars.bars) {
    double sum = 0;
    for (const double part : bar.parts) range.take(sum += part);
  }
  if (!(range.high > range.low)) range.high = 1;
  const auto across = [&](double value) {
    return kBarLeft + (value - range.low) / (range.high - range.low) * (kChartWidth - kBarLeft - 80);
  };
  std::string text = labelAt(kLeft, top + 18, "start", bars.title, 14);
  double y = top + kHead;
  for (const Bar& bar : bars.bars) {
    double sum = 0;
    for (size_t i = 0; i < bar.parts.size(); ++i) {
      const double from = across(std::min(sum, sum + bar.parts[i]));
      const double to = across(std::max(sum, sum + bar.parts[i]));
      text += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n",
                          from, y, to - from, kBarHeight - 5, colourOf(i));
      sum += bar.parts[i];
    }
    text += labelAt(kBarLeft - 8, y + 12, "end", bar.name, 11);
    text += labelAt(across(std::max(sum, 0.0)) + 6, y + 12, "start",
                    std::abs(sum) >= 1e4 ? shortNumber(sum) : fmt::format("{:.4g}", sum), 11);
    y += kBarHeight;
  }
  return text + legendOf(entriesOf(bars), y + 4).text;
}

}  // namespace weft
