// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/report/report.h"

#include <fmt/format.h>

#include "tools/output/output.h"
#include "tools/output/words.h"

namespace weft::report {

namespace {

constexpr size_t kTextWidth = 112;

std::string padded(const std::string& text, size_t width, bool word) {
  return word ? fmt::format("{:<{}}", text, width) : fmt::format("{:>{}}", text, width);
}

std::string tableText(const Section& section) {
  std::vector<size_t> widths;
  for (const Column& column : section.columns) widths.push_back(column.name.size());
  for (const auto& row : section.rows)
    for (size_t i = 0; i < row.size(); i++) widths[i] = std::max(widths[i], row[i].text.size());
  const auto line = [&](const auto& textAt) {
    std::string text = "  ";
    for (size_t i = 0; i < widths.size(); i++)
      text += (i > 0 ? "  " : "") + padded(textAt(i), widths[i], section.columns[i].word);
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string text = line([&](size_t i) { return section.columns[i].name; });
  for (const auto& row : section.rows) text += line([&](size_t i) { return row[i].text; });
  return text;
}

std::string sectionText(const Section& section) {
  std::string text = section.title + "\n" + wrapped(section.remark, kTextWidth, "  ");
  if (!section.rows.empty()) text += tableText(section);
  return text + "\n";
}

std::string cellMarkup(const Cell& cell, const Column& column) {
  std::string attributes = column.word ? " class=\"word\"" : "";
  if (cell.shade > 0)
    attributes += fmt::format(" style=\"background:color-mix(in srgb,var(--c0) {:.0f}%,transparent)\"",
                              5 + 40 * cell.shade);
  return fmt::format("<td{}>{}</td>", attributes, escapedMarkup(cell.text));
}

std::string tableMarkup(const Section& section) {
  std::string text = "<div class=\"wide\"><table>\n<thead><tr>";
  for (const Column& column : section.columns)
    text += fmt::format("<th{}>{}</th>", column.word ? " class=\"word\"" : "", escapedMarkup(column.name));
  text += "</tr></thead>\n<tbody>\n";
  for (const auto& row : section.rows) {
    text += "<tr>";
    for (size_t i = 0; i < row.size(); i++) text += cellMarkup(row[i], section.columns[i]);
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

std::string sectionMarkup(const Section& section) {
  std::string text = "<h2>" + escapedMarkup(section.title) + "</h2>\n";
  if (!section.remark.empty()) text += "<p class=\"soft\">" + escapedMarkup(section.remark) + "</p>\n";
  if (!section.drawing.empty()) text += section.drawing.inPage();
  return section.rows.empty() ? text : text + tableMarkup(section);
}

std::vector<Section> allSections(const Report& report) {
  if (!report.second) return sectionsOf(report.first);
  std::vector<Section> all{
      sectionOf(differencesOf(report.first, *report.second), report.first, *report.second)};
  std::vector<Section> first = sectionsOf(report.first);
  std::vector<Section> second = sectionsOf(*report.second);
  for (Section& section : first) {
    const auto same = std::find_if(second.begin(), second.end(),
                                   [&](const Section& one) { return one.title == section.title; });
    section.title += ": A";
    all.push_back(std::move(section));
    if (same == second.end()) continue;
    same->title += ": B";
    all.push_back(std::move(*same));
    second.erase(same);
  }
  for (Section& section : second) {
    section.title += ": B";
    all.push_back(std::move(section));
  }
  return all;
}

std::string titleOf(const Report& report) {
  return "weft report: " + report.first.name + (report.second ? " and " + report.second->name : "");
}

Result<Report> readReport(const Options& options) {
  Report report;
  TRY(report.first, readRun(options.first));
  if (options.second.empty()) return report;
  TRY(report.second, readRun(options.second));
  return report;
}

Status reported(const Options& options) {
  const bool page = !options.text && !options.json;
  if (page) TRY(canWrite(options.output));
  TRY(const Report report, readReport(options));
  if (options.text) return show(textOf(report));
  if (options.json) return show(jsonOf(report));
  TRY(writeDocument(options.output, pageOf(report)));
  if (options.output != "-") return show(options.output + " is written; a browser shows it\n");
  return {};
}

}  // namespace

std::string textOf(const Report& report) {
  std::string text = titleOf(report) + "\n\n";
  for (const Section& section : allSections(report)) text += sectionText(section);
  return text;
}

std::string pageOf(const Report& report) {
  std::string body;
  for (const Section& section : allSections(report)) body += sectionMarkup(section);
  return weft::pageOf(titleOf(report), body);
}

int run(const Options& options) {
  const Status done = reported(options);
  if (done) return 0;
  fmt::print(stderr, "weft report: {}\n", done.error().message());
  return exitCodeOf(done.error());
}

}  // namespace weft::report
