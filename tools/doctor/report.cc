// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/doctor/report.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "src/base/printable.h"
#include "src/base/version.h"
#include "tools/doctor/mend.h"

namespace weft::doctor {

namespace {

constexpr Severity kWorstFirst[] = {Severity::error, Severity::warning, Severity::unknown, Severity::note,
                                    Severity::fine};

const char* byWord(Mend::By by) {
  switch (by) {
    case Mend::By::root:
      return "root";
    case Mend::By::setting:
      return "setting";
    case Mend::By::hand:
      return "hand";
    case Mend::By::nobody:
      break;
  }
  return "";
}

const char* mendLabel(Mend::By by) {
  switch (by) {
    case Mend::By::root:
      return "as root: ";
    case Mend::By::setting:
      return "setting: ";
    default:
      return "do:      ";
  }
}

size_t howMany(const Findings& findings, Severity severity) {
  return static_cast<size_t>(std::count_if(findings.begin(), findings.end(),
                                           [&](const Finding& one) { return one.severity == severity; }));
}

std::string countsText(const Findings& findings) {
  std::string text;
  for (const Severity severity : kWorstFirst)
    if (const size_t count = howMany(findings, severity); count > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count,
                          severity == Severity::fine      ? "fine"
                          : severity == Severity::unknown ? "could not look"
                          : count == 1                    ? word(severity)
                                                          : std::string(word(severity)) + "s");
  return text;
}

std::string headText(const Finding& one) {
  return printable(fmt::format("{}: {}: {}", one.topic, one.what, one.evidence));
}

std::string findingText(const Finding& one) {
  std::string text = fmt::format("{:<8} {}\n", word(one.severity), headText(one));
  if (one.mend.by != Mend::By::nobody)
    text += fmt::format("         {}{}\n", mendLabel(one.mend.by), mendText(one.mend));
  return text;
}

// A line of the script: a command for root of this host, and else a comment.
std::string scriptLine(const Mend& mend, Where where) {
  if (where == Where::here)
    if (const auto command = commandOf(mend)) return *command;
  const char* label = mend.by == Mend::By::setting ? "in the job: export "
                      : mend.by == Mend::By::root  ? "as root"
                                                   : "by hand: ";
  const char* place = mend.by != Mend::By::root ? "" : where == Where::here ? ": " : " there: ";
  return fmt::format("# {}{}{}", label, place, mendText(mend));
}

std::string scriptHead(const HostReport& report) {
  const char* place =
      report.where == Where::here ? "" : ", another host: weft doctor --fix-script there makes its script";
  return fmt::format("\n# --- {}{}\n", printable(report.host), place);
}

}  // namespace

const char* word(Severity severity) {
  static constexpr const char* kWords[] = {"ok", "note", "unknown", "warning", "error"};
  return kWords[static_cast<size_t>(severity)];
}

Severity worst(const Findings& findings) {
  Severity found = Severity::fine;
  for (const Finding& one : findings) found = std::max(found, one.severity);
  return found;
}

std::string reportText(const HostReport& report, bool all) {
  std::string text = fmt::format("{}: {}\n", printable(report.host), countsText(report.findings));
  for (const Severity severity : kWorstFirst) {
    if (severity == Severity::fine && !all) continue;
    for (const Finding& one : report.findings)
      if (one.severity == severity) text += findingText(one);
  }
  return text;
}

Json reportJson(const HostReport& report) {
  Json rows = Json::array();
  for (const Finding& one : report.findings)
    rows.append({{"severity", word(one.severity)},
                 {"topic", printable(one.topic)},
                 {"what", printable(one.what)},
                 {"evidence", printable(one.evidence)},
                 {"mend", mendText(one.mend)},
                 {"mendBy", byWord(one.mend.by)}});
  return {{"host", printable(report.host)},
          {"worst", word(worst(report.findings))},
          {"findings", std::move(rows)}};
}

std::string fixScript(const std::vector<HostReport>& reports) {
  std::string text = fmt::format(
      "#!/bin/sh\n# What {} would have root do. Read it before you run it.\nset -e\n", versionText());
  std::set<std::string> said;
  for (const HostReport& report : reports) {
    std::string part;
    for (const Finding& one : report.findings) {
      if (one.severity < Severity::note || one.mend.by == Mend::By::nobody) continue;
      const std::string line = scriptLine(one.mend, report.where);
      if (said.insert(report.host + line).second) part += "# " + headText(one) + "\n" + line + "\n";
    }
    if (!part.empty()) text += scriptHead(report) + part;
  }
  return text;
}

int exitStatus(Severity severity) {
  if (severity == Severity::error) return 4;
  return severity == Severity::warning ? 3 : 0;
}

}  // namespace weft::doctor
