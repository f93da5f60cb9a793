// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <csignal>
#include <cstdio>
#include <poll.h>
#include <string>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "providers/registry.h"
#include "src/agg/daemon.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/random.h"
#include "src/base/version.h"
#include "src/control/hub.h"
#include "tools/command_words.h"
#include "tools/output/output.h"

// weft-aggd: its command line, and its life until a signal ends it.
namespace weft {

namespace {

constexpr int kPort = 29600;  // where nobody says another; the pages, the unit and weft doctor have it, too

struct Options {
  agg::DaemonOptions daemon;
  std::string status;
  bool json = false;
  bool prometheus = false;
  int drainSeconds = 30;
  int device = 0;
};

int report(const Error& error) {
  std::fprintf(stderr, "weft-aggd: %s\n", error.message().c_str());
  return exitCodeOf(error);
}

void declare(CLI::App& app, Options& options) {
  agg::DaemonOptions& daemon = options.daemon;
  app.add_option("--listen", daemon.listen,
                 "ADDRESS:PORT where ranks join; port 0: any (default: 0.0.0.0:29600, without a "
                 "secret 127.0.0.1:29600)");
  app.add_option("--name", daemon.name,
                 "HOST:PORT by which others know it (default: the address where it listens)");
  app.add_option("--secret", daemon.secret,
                 "@FILE, whose first line is the secret of those who may join (default: WEFT_AGGD_SECRET)")
      ->check([](const std::string& text) {
        return text.starts_with('@') ? std::string()
                                     : std::string(
                                           "a command line is seen by every user of the host: write "
                                           "the secret into a file and give --secret @FILE");
      });
  app.add_option("--device", options.device, "network device")->capture_default_str();
  app.add_option("--window", daemon.window, "chunks of a group that may be here at a time")
      ->check(CLI::Range(2, 256))
      ->capture_default_str();
  app.add_option("--max-groups", daemon.limits.groups, "groups at a time")->capture_default_str();
  app.add_option("--max-bytes", daemon.limits.bytes, "memory of all groups, those that form included")
      ->capture_default_str();
  app.add_option("--fan-in", daemon.limits.ranks, "ranks of a group")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--drain", options.drainSeconds, "seconds that SIGTERM leaves groups to end")
      ->capture_default_str();
  app.add_option("--status", options.status, "instead: what the daemon at HOST:PORT says about itself");
  app.add_flag("--json", options.json, "the same for programs");
  app.add_flag("--prometheus", options.prometheus, "the same for Prometheus");
}

Result<std::string> askStatus(const Options& options) {
  using Format = agg::Daemon::Format;
  TRY(const Config config, readConfigFromEnvironment());
  coll::StatusQuestion question;
  question.daemon = options.status;
  question.secret = options.daemon.secret.empty() ? config.aggdSecret : options.daemon.secret;
  TRY(question.protection, readProtection(config));
  question.format = static_cast<uint8_t>(options.json         ? Format::json
                                         : options.prometheus ? Format::prometheus
                                                              : Format::text);
  return coll::askStatus(question, Clock::system());
}

int showStatus(const Options& options) {
  const auto said = askStatus(options);
  if (!said) return report(said.error());
  std::fputs(said->c_str(), stdout);
  return 0;
}

Result<core::ContextRef> openNetwork(const Config& config) {
  TRY(Choice choice, chooseTransport(config));
  core::NetOptions options;
  options.config = config;
  options.tuner = control::kFitsAll;  // a daemon gives NCCL no advice
  options.transport = std::move(choice.transport);
  options.devices = std::move(choice.devices);
  options.local = std::move(choice.local);
  options.whyNotLocal = std::move(choice.whyNotLocal);
  TRY(auto net, core::Net::create(std::move(options)));
  core::ContextOptions context;
  context.perCommunicator = true;
  context.communicator = randomU64();
  return net->openContext(std::move(context));
}

// The next of these signals, or 0 when the time is over.
int awaitSignal(const Fd& signals, int milliseconds) {
  pollfd one{signals.get(), POLLIN, 0};
  signalfd_siginfo got{};
  if (::poll(&one, 1, milliseconds) <= 0) return 0;
  return ::read(signals.get(), &got, sizeof got) == sizeof got ? static_cast<int>(got.ssi_signo) : 0;
}

Result<int> serve(Options& options) {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&wanted, signal);
  ::pthread_sigmask(SIG_BLOCK, &wanted, nullptr);
  const Fd signals(::signalfd(-1, &wanted, SFD_CLOEXEC));
  TRY(const Config config, readConfigFromEnvironment());
  LogLevel level;
  if (parseLogLevel(config.logLevel.c_str(), &level)) setLogLevel(level);
  if (options.daemon.secret.empty()) options.daemon.secret = config.aggdSecret;
  TRY(options.daemon.context, openNetwork(config));
  options.daemon.device = options.device;
  if (options.daemon.listen.empty())  // without a secret for this host alone
    options.daemon.listen =
        (options.daemon.secret.empty() ? "127.0.0.1:" : "0.0.0.0:") + std::to_string(kPort);
  TRY(const auto daemon, agg::Daemon::start(std::move(options.daemon)));
  std::printf("%s: aggregating as %s on port %u\n", versionText(), daemon->name().c_str(), daemon->port());
  if (daemon->isOpenToThisHostOnly())
    std::printf(
        "without a secret only ranks of this host can join; to serve others, give one with --secret @FILE "
        "or WEFT_AGGD_SECRET: itself, or @FILE whose first line it is\n");
  std::fflush(stdout);
  (void)awaitSignal(signals, -1);
  // A second signal ends it at once.
  for (int tenths = 0; !daemon->drain() && tenths < options.drainSeconds * 10; tenths++)
    if (awaitSignal(signals, 100) != 0) break;
  return 0;
}

int run(int argc, char** argv) {
  CLI::App app("weft-aggd: reduces what ranks send, so that each sends and receives its vector once",
               "weft-aggd");
  app.set_version_flag("--version", versionText());
  Options options;
  declare(app, options);
  speakPlainly(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return answerFor(app, "weft-aggd", app, error);
  }
  if (!options.status.empty()) return showStatus(options);
  const auto served = serve(options);
  return served ? *served : report(served.error());
}

}  // namespace

}  // namespace weft

int main(int argc, char** argv) {
  weft::occupyStandardFiles();
  weft::nameProgram("weft-aggd");
  return weft::run(argc, argv);
}
