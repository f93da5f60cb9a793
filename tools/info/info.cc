// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/info/info.h"

#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "src/base/config.h"
#include "tools/info/config_table.h"
#include "tools/info/survey_text.h"

namespace weft::info {

namespace {

struct Options {
  bool config = false;
  bool markdown = false;
  bool json = false;
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

int run(const Options& options) {
  if (options.markdown) {
    fmt::print("{}", configMarkdown());
    return 0;
  }
  const auto config = readConfigFromEnvironment();
  if (!config) return fail(config.error());
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
  command->callback([options, exitCode] { *exitCode = run(*options); });
}

}  // namespace weft::info
