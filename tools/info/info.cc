// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/info/info.h"

#include <fmt/format.h>

#include "providers/registry.h"
#include "src/base/config.h"
#include "src/topo/machine.h"
#include "tools/info/config_table.h"
#include "tools/info/survey_text.h"
#include "tools/info/tuner_view.h"

namespace weft::info {

namespace {

int fail(const Error& error) {
  fmt::print(stderr, "error: {}\n", error.message());
  return 1;
}

// What has no effect: mostly a name that is misspelt.
void printWarnings() {
  for (const std::string& line : environmentWarnings()) fmt::print("warning: {}\n", line);
}

Json settingsJson(const Config& config) {
  return {{"config", configJson(config)}, {"unknown", environmentWarnings()}};
}

void printSettings(const Options& options, const Config& config) {
  if (options.json) return fmt::print("{}\n", settingsJson(config).text());
  fmt::print("{}", configText(config));
  printWarnings();
}

int printSurvey(const Options& options, const Config& config) {
  const Survey found = survey(config);
  if (options.json) {
    Json document = surveyJson(found);
    document.addMembersOf(settingsJson(config));
    fmt::print("{}\n", document.text());
  } else {
    fmt::print("{}", surveyText(found));
    printWarnings();
  }
  return found.taken.empty() ? 1 : 0;
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
int printTuner(const Options& options, const Config& config) {
  auto around = surroundings(options, config);
  if (!around) return fail(around.error());
  const tuner::Policy policy = tuner::decide(config, *around);
  const TunerQuestion question{around.take(),
                               {options.nodes, options.ranks ? options.ranks : 8 * options.nodes}};
  if (options.json)
    fmt::print("{}\n", tunerJson(question, policy).text());
  else
    fmt::print("{}", tunerText(question, policy));
  return 0;
}

}  // namespace

int run(const Options& options) {
  if (options.markdown) {
    fmt::print("{}", configMarkdown());
    return 0;
  }
  const auto config = readConfigFromEnvironment();
  if (!config) return fail(config.error());
  if (options.tuner) return printTuner(options, *config);
  if (!options.config) return printSurvey(options, *config);
  printSettings(options, *config);
  return 0;
}

}  // namespace weft::info
