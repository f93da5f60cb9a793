// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/doctor/report.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "src/base/version.h"

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

std::string findingText(const Finding& one) {
  std::string text = fmt::format("{:<8} {}: {}: {}\n", word(one.severity), one.topic, one.what, one.evidence);
  if (one.mend.by != Mend::By::nobody)
    text += fmt::format("         {}{}\n", mendLabel(one.mend.by), one.mend.text);
  return text;
}

// A comment of a shell has one line.
std::string oneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
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
  std::string text = fmt::format("{}: {}\n", report.host, countsText(report.findings));
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
                 {"topic", one.topic},
                 {"what", one.what},
                 {"evidence", one.evidence},
                 {"mend", one.mend.text},
                 {"mendBy", byWord(one.mend.by)}});
  return {{"host", report.host}, {"worst", word(worst(report.findings))}, {"findings", std::move(rows)}};
}

std::string fixScript(const std::vector<HostReport>& reports) {
  std::string text = fmt::format(
      "#!/bin/sh\n# What {} would have root do. Read it before you run it.\nset -e\n", versionText());
  std::set<std::string> said;
  for (const HostReport& report : reports) {
    std::string part;
    for (const Finding& one : report.findings) {
      if (one.severity < Severity::note || one.mend.by == Mend::By::nobody) continue;
      // A name in capitals has to be filled in, so the line is no command yet.
      const bool runs = one.mend.by == Mend::By::root && one.mend.text.find("ADDRESS") == std::string::npos;
      const std::string line = oneLine((runs                               ? ""
                                        : one.mend.by == Mend::By::setting ? "# in the job: export "
                                                                           : "# by hand: ") +
                                       one.mend.text);
      if (said.insert(report.host + line).second)
        part += oneLine(fmt::format("# {}: {}: {}", one.topic, one.what, one.evidence)) + "\n" + line + "\n";
    }
    if (!part.empty()) text += "\n# --- " + report.host + "\n" + part;
  }
  return text;
}

int exitStatus(Severity severity) {
  if (severity == Severity::error) return 4;
  return severity == Severity::warning ? 3 : 0;
}

}  // namespace weft::doctor
