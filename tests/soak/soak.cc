// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#include "tests/soak/hub.h"
#include "tools/netdriver/log_sink.h"

// Mixed traffic with random faults for a given time: one process that lives through it and several that come
// and go, are killed and stopped, close in the middle of everything, or break their own fabric. Every byte is
// checked, and that memory, descriptors and threads stay what they were. See usage() in options.cc.
namespace weft::soak {
namespace {

constexpr unsigned kPatience = 240;  // seconds over the time asked for, before the kernel ends us

void set(const char* name, const std::string& value) {
  setenv(name, value.c_str(), 1);
}

}  // namespace

// Deadlines short enough to see many errors, long enough for a busy machine.
void prepareEnvironment(const Options& options, const std::string& provider) {
  unsetenv("WEFT_TEST_FULL");
  set("WEFT_PROVIDER", provider);
  set("WEFT_LANE_TIMEOUT", "3000");
  set("WEFT_CONNECT_TIMEOUT", "6000");
  set("WEFT_CLOSE_TIMEOUT", "1500");
  // Half of the runs let the numbers of messages go around again and again.
  set("WEFT_SEQUENCE_BITS", options.seed % 2 == 0 ? "10" : "32");
  for (const std::string& assignment : options.environment)
    set(assignment.substr(0, assignment.find('=')).c_str(), assignment.substr(assignment.find('=') + 1));
}

namespace {

int runHub(const Options& options) {
  std::printf("soak: seed %llu, %g minutes, %s, %d peers\n", static_cast<unsigned long long>(options.seed),
              options.minutes, options.provider.c_str(), options.peers);
  std::fflush(stdout);
  alarm(static_cast<unsigned>(options.minutes * 60) + kPatience);
  system::Settings settings;
  Run run(settings, "soak");
  try {
    auto library = run.need(netdriver::Library::open(options.plugin, netdriver::Library::kNewestAbi));
    Hub(run, options, *library).run();
  } catch (const system::CaseFailed&) {
    // Reported where it happened.
  }
  std::printf("soak: %s, seed %llu, %s: %s\n", run.failures() == 0 ? "clean" : "FAILED",
              static_cast<unsigned long long>(options.seed), options.provider.c_str(), run.summary().c_str());
  return run.failures() == 0 ? 0 : 1;
}

int runSoak(int argc, char** argv) {
  const auto options = parseOptions(argc, argv);
  if (!options) {
    std::fprintf(stderr, "error: %s\n%s", options.error().message().c_str(), usage());
    return 2;
  }
  netdriver::LogSink::instance().setQuiet(!options->verbose);
  const bool hub = options->port == 0;
  prepareEnvironment(
      *options, hub ? "fault(" + gentleRules(options->seed) + "):" + options->provider : options->provider);
  return hub ? runHub(*options) : runPeer(*options);
}

}  // namespace
}  // namespace weft::soak

int main(int argc, char** argv) {
  return weft::soak::runSoak(argc, argv);
}
