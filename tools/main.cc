// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>

#include "providers/registry.h"
#include "src/base/nearest.h"
#include "src/base/version.h"
#include "tools/command_perf.h"
#include "tools/command_sim.h"
#include "tools/command_words.h"
#include "tools/doctor/doctor.h"
#include "tools/info/info.h"
#include "tools/output/output.h"
#include "tools/perf/operation.h"
#include "tools/perf/perf.h"
#include "tools/plan/plan.h"
#include "tools/report/report.h"
#include "tools/sim/sim.h"
#include "tools/state/state.h"
#include "tools/stats/autopsy.h"
#include "tools/stats/stats.h"
#include "tools/stats/top.h"
#include "tools/trace/show/trace.h"

// The weft command: what may be written on its command line. Only this file and command_*.cc know CLI11,
// which takes many seconds to compile; they are compiled as one.
namespace weft {

namespace {

constexpr const char* kExamples = R"(Examples:
    weft info                                     which network NCCL would get here, and why
    weft perf all_reduce -n 4 -b 8 -e 64M -f 2    four local processes, every element verified
    weft perf --help                              all about measuring)";
constexpr const char* kInfoExamples = R"(Examples:
    weft info                      which network NCCL would get here, and why
    weft info --config             every setting, its value and what set it
    weft info --json               the same for programs
    weft info --topology nd-a100-v4 > topo.xml    for NCCL_TOPO_FILE
    weft info --tuner --machine p5.48xlarge --nodes 16)";
constexpr const char* kTraceExamples = R"(Examples:
    weft trace FOLDER              what each rank of a recorded job called
    weft trace --events FILE       every call)";
constexpr const char* kStateExamples = R"(Examples:
    WEFT_STATE_DIR=/run/weft python train.py &
    weft state /run/weft           what each of its processes waits for)";

constexpr const char* kPlanExamples = R"(Examples:
    weft plan job.json --cluster cluster.json                what a step takes on 2 to 4096 GPUs, and why
    weft plan job.json --cluster p5.48xlarge -n 8..512 --html plan.html
    weft plan job.json --cluster cluster.json --fit-below 128    against what was measured

The jobs and clusters of published results are in share/weft/plan of the installation.)";

constexpr const char* kReportExamples = R"(Examples:
    WEFT_PROFILE=/tmp/profiles python train.py
    weft report /tmp/profiles              where the time went, as weft-report.html
    weft report --text before after        what differs between two runs)";

constexpr const char* kDoctorExamples =
    R"(The exit status is that of the worst finding: 0 nothing worse than a note, 3 a warning, 4 an error.
Examples:
    weft doctor                    is this host fit for a job? Also in a scheduler's prologue
    weft doctor --job              does a job in this environment get weft?
    weft doctor --fix-script > fix.sh    what root would run
    srun --ntasks-per-node 1 weft doctor --all --job
    weft doctor --hosts node8,node9      is the way there open, and how long may a packet be?)";

void declareInfo(CLI::App& command, info::Options& options) {
  CLI::Option* config =
      command.add_flag("--config", options.config, "only the settings: effective values and meaning");
  CLI::Option* markdown =
      command.add_flag("--markdown", options.markdown, "the settings as docs/environment.md");
  CLI::Option* json = command.add_flag("--json", options.json, "the same for programs");
  markdown->needs(config)->excludes(json);
  command.add_flag("--sample", options.sample, "the settings as a configuration file to start from")
      ->needs(config)
      ->excludes(json)
      ->excludes(markdown);
  command
      .add_flag("--image", options.image,
                "what will and will not work in this image, without hardware; 1 if weft cannot")
      ->excludes(config);
  command
      .add_option("--topology", options.topology,
                  "a file for NCCL_TOPO_FILE: of a machine (p4d.24xlarge, nd-a100-v4), or of \"this\"")
      ->excludes(config);
  CLI::Option* tuner =
      command.add_flag("--tuner", options.tuner, "what the tuner would advise NCCL, why, and who says so");
  tuner->excludes(config);
  command.add_option("--machine", options.machine, "ask for this EC2 instance type instead (p5.48xlarge)")
      ->needs(tuner);
  command.add_option("--nodes", options.nodes, "of the communicator")
      ->needs(tuner)
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command.add_option("--ranks", options.ranks, "of the communicator (default: 8 a node)")
      ->needs(tuner)
      ->check(CLI::Range(1, 1000000000));
}

void declareTrace(CLI::App& command, trace::Options& options) {
  command.add_option("files", options.files, "traces, or folders with traces")->required();
  command.add_flag("--events", options.events, "every call, not only what they amount to");
  command.add_flag("--json", options.json, "the same for programs");
}

void declareState(CLI::App& command, state::Options& options) {
  command.add_option("folder", options.folder, "what WEFT_STATE_DIR is in the job's environment")->required();
  command.add_flag("--json", options.json, "the same for programs");
  command
      .add_option("--wait", options.seconds,
                  "seconds that the processes are given to answer; it ends when all have")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
}

void declarePlan(CLI::App& command, plan::Options& options) {
  command.add_option("job", options.job, "a file that describes the job, or a folder of its traces")
      ->required();
  command
      .add_option("--cluster", options.cluster,
                  "a file that describes the cluster, or of weft perf --fit, or a machine")
      ->required();
  command.add_option("-n,--gpus", options.gpus, "GPUs: 2..4096 doubles, 8,24 is a list")
      ->capture_default_str();
  command.add_option(
      "--algo", options.algorithm,
      "instead of the job's own: best, ring, tree, double-tree, hierarchical, collnet, levels");
  command
      .add_option("--fit-below", options.fitBelow,
                  "fit the job's free numbers to what was measured on fewer GPUs")
      ->check(CLI::Range(2.0, 1e6));
  command
      .add_option("--set", options.set, "NAME=VALUE: another number than that of the files; can be repeated")
      ->allow_extra_args(false);
  command.add_option("--rails-lost", options.railsLost, "rails of each node that are gone")
      ->check(CLI::Range(0, 1000));
  command.add_option("--seed", options.seed, "of the draws for skew")->capture_default_str();
  command.add_option("--draws", options.draws, "for skew")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command.add_option("--json", options.json, "write the results to this file; - is the standard output");
  command.add_option("--html", options.html, "write them with plots to this file");
  command.add_option("--plot", options.plot, "draw the plots alone into this SVG file");
  command.add_option(
      "--chakra", options.chakra,
      "write the job for ASTRA-sim, of the largest number of GPUs, to files NAME.0.et, NAME.1.et, ...");
  command.add_option("--goal", options.goal, "write it for LogGOPSim to this file");
}

void declareReport(CLI::App& command, report::Options& options) {
  command
      .add_option(
          "run", options.first,
          "a folder that is WEFT_PROFILE, WEFT_RECORD_DIR or WEFT_STATE_DIR of a job, or a file of it")
      ->required();
  command.add_option("other", options.second, "another run, to say what differs");
  command.add_option("-o,--output", options.output, "the page to write; - is the standard output")
      ->capture_default_str();
  CLI::Option* text = command.add_flag("--text", options.text, "the same as text, instead of the page");
  command.add_flag("--json", options.json, "the same for programs")->excludes(text);
  command.footer(kReportExamples);
}

void declareStats(CLI::App& command, counted::Options& options) {
  command.add_option("where", options.where,
                     "a folder that is WEFT_STATE_DIR, or process numbers (default: this host)");
  CLI::Option* json = command.add_flag("--json", options.json, "the same for programs");
  command.add_flag("--prometheus", options.prometheus, "as metrics for Prometheus")->excludes(json);
  command
      .add_flag(
          "--per-comm", options.perComm,
          "metrics of each comm with its process and peer, not sums by rank, device and direction: many")
      ->excludes(json);
  command.add_option("--textfile", options.textfile,
                     "write metrics to weft.prom in this folder, again and again");
  command.add_option("--otlp", options.otlp,
                     "send metrics to a collector of OpenTelemetry, http://HOST[:4318][/v1/metrics]");
  command
      .add_option("--interval", options.interval, "seconds between two such files or messages; 0: only one")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
}

void declareTop(CLI::App& command, counted::TopOptions& options) {
  command.add_option("where", options.where,
                     "a folder that is WEFT_STATE_DIR, or process numbers (default: this host)");
  command.add_flag("--once", options.once, "one table, for scripts");
  command.add_option("--interval", options.interval, "seconds between two looks")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command.add_option("--sort", options.sort, "wait, rate, busy, latency or name comes first")
      ->check(CLI::IsMember(counted::topOrders()))
      ->capture_default_str();
  command.add_option("--filter", options.filter, "only what has this text in its process, peer or device");
  command.add_option("--rows", options.rows, "at most so many comms")->check(CLI::Range(1, 100000));
}

void declareAutopsy(CLI::App& command, counted::AutopsyOptions& options) {
  command.add_option("folder", options.folder, "what WEFT_STATE_DIR was in the job's environment")
      ->required();
  command.add_flag("--json", options.json, "the same for programs");
}

// The commands that read what processes counted.
class CountedCommands {
 public:
  explicit CountedCommands(CLI::App& app)
      : stats_(app.add_subcommand("stats", "show what running processes have counted")),
        top_(app.add_subcommand("top", "watch the traffic of running processes")),
        autopsy_(app.add_subcommand("autopsy", "name the rank of a job that stood still first")) {
    declareStats(*stats_, statsOptions_);
    declareTop(*top_, topOptions_);
    declareAutopsy(*autopsy_, autopsyOptions_);
  }
  bool parsed() const { return stats_->parsed() || top_->parsed() || autopsy_->parsed(); }
  int run() const {
    if (stats_->parsed()) return counted::runStats(statsOptions_);
    return top_->parsed() ? counted::runTop(topOptions_) : counted::runAutopsy(autopsyOptions_);
  }

 private:
  CLI::App* stats_;
  CLI::App* top_;
  CLI::App* autopsy_;
  counted::Options statsOptions_;
  counted::TopOptions topOptions_;
  counted::AutopsyOptions autopsyOptions_;
};

void declareDoctor(CLI::App& command, doctor::Options& options) {
  CLI::Option* json = command.add_flag("--json", options.json, "the same for programs");
  command.add_flag("-v,--verbose", options.verbose, "what is fine, too");
  command.add_flag("--fix-script", options.fixScript, "a shell script of what root would run, to read first")
      ->excludes(json);
  command.add_flag("--job", options.job,
                   "this is a job's own environment: does it have what NCCL needs to load weft, too");
  CLI::Option* all =
      command.add_flag("--all", options.all,
                       "every node of the launcher that started this (srun, mpirun, torchrun), "
                       "what differs between them, and the paths between them");
  command
      .add_option("--hosts", options.hosts, "probe the way to these hosts: firewall and length of packets")
      ->delimiter(',')
      ->excludes(all);
  command.add_option("--wait", options.seconds, "seconds that a probe waits for an answer")
      ->check(CLI::Range(0.1, 600.0))
      ->capture_default_str();
  command.footer(kDoctorExamples);
}

// More than a line: what a support request needs.
std::string versionLines() {
  return std::string(versionText()) + "\nbuilt by compiler " + perf::buildText() + ", with " +
         builtProviders() + "\nNCCL net tables v6 to v12";
}

int noOption(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::string nearest = nearestWord(word, names);
  std::cerr << "weft: " << word << ": no such option before a command"
            << (nearest.empty() ? "" : "; did you mean " + nearest + "?") << "; see weft --help\n";
  return kUsageCode;
}

// All commands have the same convention: `--json -` is the standard output, and so is `--json` with nothing
// behind it. `weft perf`, `weft plan` and `weft sim` write a file there, so the dash is taken away from the
// others and given to them.
std::vector<std::string> withOneJson(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  const bool writesFile = argc > 1 && (words[1] == "perf" || words[1] == "plan" || words[1] == "sim");
  for (size_t i = 2; i < words.size(); i++) {
    if (words[i] != "--json") continue;
    const bool last = i + 1 == words.size();
    const bool dash = !last && words[i + 1] == "-";
    const auto next = words.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    if (writesFile && (last || (!dash && words[i + 1].starts_with('-')))) words.insert(next, "-");
    if (!writesFile && dash) words.erase(next);
  }
  return words;
}

int noCommand(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  std::string all;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
    all += (all.empty() ? "" : ", ") + names.back();
  }
  std::vector<std::string> operations;
  for (const perf::Operation& operation : perf::operations()) operations.emplace_back(operation.name);
  const std::string nearest = nearestWord(word, names);
  std::string hint = nearest.empty() ? nearest : "; did you mean weft " + nearest + "?";
  if (const std::string operation = nearestWord(word, operations); hint.empty() && !operation.empty())
    hint = "; did you mean weft perf " + operation + "?";
  std::cerr << "weft: " << word << ": no such command" << hint << "; there are " << all
            << "; see weft --help\n";
  return kUsageCode;
}

// All commands with their options. The parser keeps references to the options, so the object stays where it
// is.
class CommandLine {
 public:
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  int run(int argc, char** argv);

 private:
  const CLI::App* find(const std::string& name) const;
  int help(const std::string& name) const;
  int parse(int argc, char** argv);
  int runParsed() const;

  CLI::App app_{"weft: an NCCL network plugin, and the tools to see, prove and diagnose it", "weft"};
  CLI::App* info_ = app_.add_subcommand("info", "what weft finds here, would tell NCCL, and its settings");
  CLI::App* perf_ =
      app_.add_subcommand("perf", "Run verified collectives over a network plugin and measure them");
  CLI::App* trace_ =
      app_.add_subcommand("trace", "show what libnccl-net-record.so recorded of a plugin's calls");
  CLI::App* state_ = app_.add_subcommand("state", "show what a running job's processes wait for");
  CountedCommands counted_{app_};
  CLI::App* plan_ = app_.add_subcommand("plan", "what a job would do on a cluster, by a model");
  CLI::App* report_ =
      app_.add_subcommand("report", "where the time of a run went, and what differs from another");
  CLI::App* sim_ =
      app_.add_subcommand("sim", "Run collectives over a simulated network, by weft's own protocol");
  CLI::App* doctor_ = app_.add_subcommand("doctor", "is this host fit for a job, and what mends it?");
  info::Options infoOptions_;
  perf::Options perfOptions_;
  trace::Options traceOptions_;
  state::Options stateOptions_;
  plan::Options planOptions_;
  report::Options reportOptions_;
  sim::Options simOptions_;
  doctor::Options doctorOptions_;
};

CommandLine::CommandLine() {
  app_.set_version_flag("--version", versionLines());
  app_.footer(kExamples);
  app_.require_subcommand(1);
  declareInfo(*info_, infoOptions_);
  info_->footer(kInfoExamples);
  declarePerf(*perf_, perfOptions_);
  declareTrace(*trace_, traceOptions_);
  trace_->footer(kTraceExamples);
  declareState(*state_, stateOptions_);
  state_->footer(kStateExamples);
  declarePlan(*plan_, planOptions_);
  plan_->footer(kPlanExamples);
  declareReport(*report_, reportOptions_);
  declareSim(*sim_, simOptions_);
  declareDoctor(*doctor_, doctorOptions_);
  for (CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; }))
    command->set_version_flag("--version", versionLines());
  speakPlainly(app_);
}

const CLI::App* CommandLine::find(const std::string& name) const {
  const auto found = app_.get_subcommands([&](const CLI::App* one) { return one->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

int CommandLine::help(const std::string& name) const {
  const CLI::App* of = name.empty() ? &app_ : find(name);
  if (!of) return noCommand(app_, name);
  std::cout << (of == &app_ ? of->help() : of->help(app_.get_name()));
  return 0;
}

int CommandLine::parse(int argc, char** argv) {
  try {
    std::vector<std::string> words = withOneJson(argc, argv);
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    words.pop_back();                          // the program
    app_.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    const CLI::App* command = argc > 1 ? find(argv[1]) : nullptr;
    const std::string program = command ? "weft " + command->get_name() : "weft";
    return answerFor(command ? *command : app_, program, app_, error);
  }
  return runParsed();
}

int CommandLine::runParsed() const {
  if (doctor_->parsed()) return doctor::run(doctorOptions_);
  if (trace_->parsed()) return trace::run(traceOptions_);
  if (plan_->parsed()) return plan::run(planOptions_);
  if (report_->parsed()) return report::run(reportOptions_);
  if (sim_->parsed()) return sim::run(simOptions_);
  if (state_->parsed()) return state::run(stateOptions_);
  if (counted_.parsed()) return counted_.run();
  return info_->parsed() ? info::run(infoOptions_) : perf::run(perfOptions_);
}

int CommandLine::run(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "-V" || word == "version") {
    std::cout << versionLines() << "\n";
    return 0;
  }
  if (word == "help") return help(argc > 2 ? argv[2] : "");
  if (!word.empty() && word[0] != '-' && !find(word)) return noCommand(app_, word);
  if (word.starts_with('-') && !app_.get_option_no_throw(word)) return noOption(app_, word);
  return parse(argc, argv);
}

}  // namespace

}  // namespace weft

int main(int argc, char** argv) {
  weft::occupyStandardFiles();
  return weft::CommandLine().run(argc, argv);
}
