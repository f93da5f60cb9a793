// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/info/info.h"

#include <algorithm>

#include <fmt/format.h>

#include "providers/registry.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/base/nearest.h"
#include "src/topo/machine.h"
#include "src/tuner/platforms.h"
#include "tools/info/config_table.h"
#include "tools/info/image.h"
#include "tools/info/survey_text.h"
#include "tools/info/topology.h"
#include "tools/info/tuner_view.h"
#include "tools/output/output.h"

namespace weft::info {

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

int fail(const Error& error) {
  fmt::print(stderr, "error: {}\n", error.message());
  return error.code() == Code::invalidArgument ? kUsage : kFailed;
}

// A program that reads JSON gets some in any case.
int fail(const Options& options, const Error& error) {
  Json document;
  document.set("failure", error.message());
  if (options.json) (void)show(document.text() + "\n");
  return fail(error);
}

// The status, once the text has arrived.
int print(const std::string& text, int status = 0) {
  const Status shown = show(text);
  return shown ? status : fail(shown.error());
}

// Settings without effect: mostly a name that is misspelt.
void printWarnings() {
  for (const std::string& line : environmentWarnings()) fmt::print(stderr, "warning: {}\n", line);
}

Json settingsJson(const Settings& settings) {
  return {{"config", configJson(settings)},
          {"configFile", settings.file.path},
          {"unknown", environmentWarnings()}};
}

int printSettings(const Options& options, const Settings& settings) {
  if (options.json) return print(settingsJson(settings).text() + "\n");
  printWarnings();
  return print(configText(settings));
}

int printSurvey(const Options& options, const Settings& settings) {
  const Survey found = survey(settings.config);
  const int status = found.taken.empty() ? 1 : 0;
  if (!options.json) {
    printWarnings();
    const int shown = print(surveyText(found), status);
    if (found.taken.empty()) fmt::print(stderr, "error: {}\n", found.failure);
    return shown;
  }
  Json document = surveyJson(found);
  document.addMembersOf(settingsJson(settings));
  return print(document.text() + "\n", status);
}

int printImage(const Options& options) {
  const std::vector<Finding> findings = lookAtImage();
  return print(options.json ? imageJson(findings).text() + "\n" : imageText(findings), imageStatus(findings));
}

Result<Settings> readSettings() {
  TRY(ConfigFile file, loadConfigFile(environmentValue));
  TRY(Config config, readConfig(environmentValue, file));
  return Settings{std::move(config), std::move(file), environmentValue};
}

// As the plugin would decide it here; --machine asks for another one, on EFA with nothing else known.
Result<tuner::Surroundings> surroundings(const Options& options, const Config& config) {
  if (!options.machine.empty())
    return tuner::lookAround("ofi:efa", false, options.machine, config, environmentValue);
  const auto choice = chooseTransport(config);
  if (!choice) return choice.error();
  return tuner::lookAround(choice->transport->name(), choice->lines128InOrder(), topo::machineName(), config,
                           environmentValue);
}

// 0 also without an entry: that is an answer.
int printTopology(const std::string& name) {
  const auto topology = name == "this" ? ownTopology() : knownTopology(name);
  return topology ? print(topologyXml(*topology)) : fail(topology.error());
}

int printTuner(const Options& options, const Config& config) {
  if (options.ranks != 0 && options.ranks < options.nodes)
    return fail(Error(Code::invalidArgument, "command line", "--ranks is smaller than --nodes"));
  const std::vector<std::string> known = tuner::knownMachines();
  if (!options.machine.empty() && std::find(known.begin(), known.end(), options.machine) == known.end())
    return fail(Error(Code::invalidArgument, "command line",
                      fmt::format("--machine {}: there are numbers of {} only{}", options.machine,
                                  fmt::join(known, ", "), nearestHint(options.machine, known))));
  auto around = surroundings(options, config);
  if (!around) return fail(around.error());
  const tuner::Policy policy = tuner::decide(config, *around);
  const TunerQuestion question{around.take(),
                               {options.nodes, options.ranks ? options.ranks : 8 * options.nodes}};
  return print(options.json ? tunerJson(question, policy).text() + "\n" : tunerText(question, policy));
}

}  // namespace

int run(const Options& options) {
  if (options.markdown) return print(configMarkdown());
  if (options.sample) return print(configSample());
  if (options.image) return printImage(options);
  if (!options.topology.empty()) return printTopology(options.topology);
  const auto settings = readSettings();
  if (!settings) return fail(options, settings.error());
  LogLevel level = LogLevel::warn;
  if (parseLogLevel(settings->config.logLevel.c_str(), &level)) setLogLevel(level);
  if (options.tuner) return printTuner(options, settings->config);
  return options.config ? printSettings(options, *settings) : printSurvey(options, *settings);
}

}  // namespace weft::info
