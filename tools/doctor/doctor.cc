// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/doctor/doctor.h"

#include <fmt/format.h>

#include "src/base/config.h"
#include "src/base/process.h"
#include "src/base/version.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/cluster.h"
#include "tools/doctor/probe.h"
#include "tools/doctor/report.h"
#include "tools/output/output.h"

namespace weft::doctor {

namespace {

int fail(const Error& error) {
  fmt::print(stderr, "weft doctor: {}\n", error.message());
  return error.code() == Code::invalidArgument ? 2 : 1;
}

void append(Findings more, Findings* found) {
  found->insert(found->end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// Network and GPUs are asked with right settings only: a wrong setting has its own finding already.
Findings surveyed() {
  const auto config = readConfigFromEnvironment();
  if (!config) return {};  // weftSettings says why
  const info::Survey survey = info::survey(*config);
  Findings found = fabric(survey);
  append(gpuDirect(survey), &found);
  return found;
}

Finding jobNotAsked() {
  return {Severity::note, "job", "environment",
          "whether a job finds weft by its settings was not asked; they are another process's here",
          byHand("weft doctor --job, in the job's environment and container")};
}

HostReport lookHere(bool job) {
  HostReport report{hostName(), {}};
  const World world = thisWorld();
  for (const Check check : checks()) append(check(world), &report.findings);
  if (!job) report.findings.push_back(jobNotAsked());
  for (const Check check : job ? jobChecks() : std::span<const Check>())
    append(check(world), &report.findings);
  append(surveyed(), &report.findings);
  return report;
}

Findings probed(const std::string& host, double seconds) {
  const auto config = readConfigFromEnvironment();
  const auto ports = parsePortRange(config ? config->portRange : "");
  return probeHost(host, ports ? *ports : PortRange{}, seconds);
}

std::string textOf(const Options& options, const std::vector<HostReport>& reports) {
  if (options.fixScript) return fixScript(reports);
  if (options.json) {
    Json hosts = Json::array();
    Severity all = Severity::fine;
    for (const HostReport& report : reports) {
      hosts.append(reportJson(report));
      all = std::max(all, worst(report.findings));
    }
    const Json document{{"version", versionText()}, {"worst", word(all)}, {"hosts", std::move(hosts)}};
    return document.text() + "\n";
  }
  std::string text = std::string(versionText()) + "\n";
  for (const HostReport& report : reports) text += "\n" + reportText(report, options.verbose);
  return text;
}

int show(const Options& options, const std::vector<HostReport>& reports) {
  if (const Status shown = weft::show(textOf(options, reports)); !shown) return fail(shown.error());
  Severity all = Severity::fine;
  for (const HostReport& report : reports) all = std::max(all, worst(report.findings));
  return exitStatus(all);
}

}  // namespace

int run(const Options& options) {
  if (options.all) {
    const auto reports = lookEverywhere(options, [&options] { return lookHere(options.job); });
    if (!reports) return fail(reports.error());
    return reports->empty() ? 0 : show(options, *reports);  // rank 0 speaks for all
  }
  HostReport report = lookHere(options.job);
  for (const std::string& host : options.hosts) append(probed(host, options.seconds), &report.findings);
  return show(options, {report});
}

}  // namespace weft::doctor
