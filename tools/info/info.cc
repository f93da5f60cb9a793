// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/info/info.h"

#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "providers/registry.h"
#include "src/base/config.h"
#include "src/topo/machine.h"
#include "tools/info/config_table.h"
#include "tools/info/survey_text.h"
#include "tools/info/tuner_view.h"

namespace weft::info {

namespace {

struct Options {
  bool config = false;
  bool markdown = false;
  bool json = false;
  bool tuner = false;
  std::string machine;  // empty: this one
  uint64_t nodes = 4;
  uint64_t ranks = 0;  // 0: eight a node
};

int fail(const Error& error) {
  fmt::print(stderr, "error: {}\n", error.message());
  return 1;
}

// Settings that no row of the table knows are the usual reason why a setting has no effect.
void printUnknown() {
  for (const std::string& line : unknownEnvironmentVariables()) fmt::print("warning: {}\n", line);
}

nlohmann::ordered_json settingsJson(const Config& config) {
  return {{"config", configJson(config)}, {"unknown", unknownEnvironmentVariables()}};
}

void printSettings(const Options& options, const Config& config) {
  if (options.json) return fmt::print("{}\n", settingsJson(config).dump(2));
  fmt::print("{}", configText(config));
  printUnknown();
}

int printSurvey(const Options& options, const Config& config) {
  const Survey found = survey(config);
  if (options.json) {
    auto document = surveyJson(found);
    document.update(settingsJson(config));
    fmt::print("{}\n", document.dump(2));
  } else {
    fmt::print("{}", surveyText(found));
    printUnknown();
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
    fmt::print("{}\n", tunerJson(question, policy).dump(2));
  else
    fmt::print("{}", tunerText(question, policy));
  return 0;
}

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

}  // namespace

void addInfo(CLI::App& app, int* exitCode) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("info", "what weft finds here, would tell NCCL, and its settings");
  CLI::Option* config =
      command->add_flag("--config", options->config, "only the settings: effective values and meaning");
  CLI::Option* markdown =
      command->add_flag("--markdown", options->markdown, "the settings as docs/environment.md");
  CLI::Option* json = command->add_flag("--json", options->json, "the same for programs");
  markdown->needs(config)->excludes(json);
  CLI::Option* tuner =
      command->add_flag("--tuner", options->tuner, "what the tuner would advise NCCL, why, and who says so");
  tuner->excludes(config);
  command->add_option("--machine", options->machine, "ask for this EC2 instance type instead (p5.48xlarge)")
      ->needs(tuner);
  command->add_option("--nodes", options->nodes, "of the communicator")->needs(tuner)->capture_default_str();
  command->add_option("--ranks", options->ranks, "of the communicator (default: 8 a node)")->needs(tuner);
  command->callback([options, exitCode] { *exitCode = run(*options); });
}

}  // namespace weft::info
