// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/output/page/page.h"

#include <fmt/format.h>

#include "tools/output/words.h"

namespace weft {

namespace {

constexpr double kGapOfCharts = 18;

// The variables of the charts, for light and for dark pages.
constexpr const char* kColoursOfPage =
    ":root{--paper:#ffffff;--ink:#1b1f24;--soft:#5a636e;--grid:#d9dde2;--band:#f3f5f7;--c0:#1f6fb4;"
    "--c1:#d1662b;--c2:#3a8f4a;--c3:#8a5fb0;--c4:#b8324f;--c5:#1395a5}\n"
    "@media (prefers-color-scheme:dark){:root{--paper:#14171b;--ink:#e6e9ec;--soft:#9aa4af;--grid:#343a41;"
    "--band:#1c2127;--c0:#6db1ee;--c1:#f0955f;--c2:#74c685;--c3:#c09be2;--c4:#ef7b93;--c5:#5fd0de}}\n";

// Tables and charts that are wider than the window scroll in boxes of their own: the page does not. A chart
// has a least width, below which its words could not be read. In a narrow window words go on in a next line,
// so that the numbers beside them are seen.
constexpr const char* kStyleOfPage =
    "body{background:var(--paper);color:var(--ink);font-family:sans-serif;line-height:1.45;max-width:1100px;"
    "margin:1em auto;padding:0 1em}\n"
    "h1{font-size:1.4em;overflow-wrap:anywhere}\nh2{font-size:1.1em;margin:1.8em 0 .4em}\n"
    "p{margin:.4em 0;overflow-wrap:anywhere}\n.soft{color:var(--soft)}\n"
    "pre,.wide{overflow-x:auto}\n"
    "svg{display:block;width:100%;min-width:560px;max-width:960px;height:auto}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9em}\n"
    "th,td{padding:.2em .7em;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}\n"
    "th{color:var(--soft);font-weight:normal}\n"
    "th.word,td.word{text-align:left}\ntr:nth-child(even) td{background:var(--band)}\n"
    "@media (max-width:640px){body{padding:0 .5em}table{font-size:.8em}th,td{padding:.2em .35em}"
    "th.word,td.word{white-space:normal}}\n";

}  // namespace

void Drawing::add(const Chart& chart) {
  charts_ += drawn(chart, height_);
  height_ += heightOf(chart) + kGapOfCharts;
}

void Drawing::add(const Bars& bars) {
  charts_ += drawn(bars, height_);
  height_ += heightOf(bars) + kGapOfCharts;
}

std::string Drawing::svg(const std::string& style) const {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" "
             "height=\"{1:.0f}\" font-family=\"sans-serif\">\n",
             kChartWidth, height_) +
         style + "<rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>\n" + charts_ + "</svg>\n";
}

std::string Drawing::inPage() const {
  return "<div class=\"wide\">" + svg("") + "</div>\n";
}

std::string Drawing::ownFile() const {
  return svg(fmt::format("<style>{}</style>\n", kColoursOfPage));
}

std::string pageOf(std::string_view title, const std::string& body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
      "<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{0}</title>\n<style>{1}{2}</style>\n"
      "</head>\n<body>\n<h1>{0}</h1>\n{3}</body>\n</html>\n",
      escapedMarkup(title), kColoursOfPage, kStyleOfPage, body);
}

}  // namespace weft
