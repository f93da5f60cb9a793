// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

#include "src/base/log.h"
#include "tests/world/counting_new.h"
#include "tests/world/world.h"

// usage: simulate [--seed S] [--seeds N | --seconds T | --minutes T] [--ranks N] [--operations N]
//                 [--only WORDS] [--fabric loop|tcp|local] [--groups] [--daemons] [--refusals] [--no-hurts]
//                 [--twice] [--verbose]
//
// Runs the worlds of one seed after another, or those of which it is said that WORDS. The exit status is 1
// with the first that fails.
namespace {

using namespace weft;
using namespace weft::world;

struct Arguments {
  PlanOptions plan;
  uint64_t seeds = 1;
  double seconds = 0;  // in place of seeds
  std::string only;    // words of a plan's text; empty: all
  bool twice = false;
  bool verbose = false;
};

constexpr const char* kFabrics[] = {"loop", "tcp", "local"};

bool fabricNamed(const std::string& name, FabricKind* out) {
  const auto* known = std::find(std::begin(kFabrics), std::end(kFabrics), name);
  *out = static_cast<FabricKind>(known - std::begin(kFabrics));
  return known != std::end(kFabrics);
}

bool parse(int argc, char** argv, Arguments* out) {
  for (int i = 1; i < argc; i++) {
    const std::string name = argv[i];
    if (name == "--no-hurts")
      out->plan.hurts = false;
    else if (name == "--refusals")
      out->plan.refusals = true;
    else if (name == "--groups")
      out->plan.groups = true;
    else if (name == "--daemons")
      out->plan.groups = out->plan.daemons = true;
    else if (name == "--twice")
      out->twice = true;
    else if (name == "--verbose")
      out->verbose = true;
    else if (i + 1 == argc)
      return false;
    else if (name == "--seed")
      out->plan.seed = std::strtoull(argv[++i], nullptr, 0);
    else if (name == "--seeds")
      out->seeds = std::strtoull(argv[++i], nullptr, 0);
    else if (name == "--seconds")
      out->seconds = std::strtod(argv[++i], nullptr);
    else if (name == "--minutes")
      out->seconds = 60 * std::strtod(argv[++i], nullptr);
    else if (name == "--ranks")
      out->plan.ranks = std::atoi(argv[++i]);
    else if (name == "--fabric") {
      if (!fabricNamed(argv[++i], &out->plan.fabric)) return false;
    } else if (name == "--only")
      out->only = argv[++i];
    else if (name == "--operations")
      out->plan.operations = std::strtoull(argv[++i], nullptr, 0);
    else
      return false;
  }
  return out->plan.ranks >= 2 && out->plan.ranks <= 1024;
}

std::string commandOf(const PlanOptions& plan) {
  return format("scripts/simulate --seed %llu --ranks %d --operations %zu%s%s%s%s --fabric %s --verbose",
                static_cast<unsigned long long>(plan.seed), plan.ranks, plan.operations,
                plan.hurts ? "" : " --no-hurts", plan.groups ? " --groups" : "",
                plan.daemons ? " --daemons" : "", plan.refusals ? " --refusals" : "",
                kFabrics[static_cast<size_t>(plan.fabric)]);
}

void report(const PlanOptions& plan, const Outcome& outcome) {
  std::printf("seed %llu failed: %s\n\n%s\nThe last events of each rank:\n%s\nAgain, with all events: %s\n",
              static_cast<unsigned long long>(plan.seed), outcome.complaint.c_str(), outcome.plan.c_str(),
              outcome.last.c_str(), commandOf(plan).c_str());
}

// What is said where a world ends the whole program. A fiber's stack may be what is at fault, so the signal
// has a stack of its own.
char lastWords[512];

void crash(int signal) {
  (void)!::write(STDOUT_FILENO, lastWords, std::strlen(lastWords));
  (void)::signal(signal, SIG_DFL);
  (void)::raise(signal);
}

void hearCrashes() {
  static char stack[64 << 10];
  stack_t own{};
  own.ss_sp = stack;
  own.ss_size = sizeof stack;
  (void)::sigaltstack(&own, nullptr);
  struct sigaction action {};
  action.sa_handler = crash;
  action.sa_flags = SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) {
    struct sigaction before {};
    (void)::sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_DFL) (void)::sigaction(signal, &action, nullptr);  // a sanitizer says more
  }
}

bool sameAgain(const PlanOptions& plan, const Outcome& first) {
  const Outcome again = runWorld(plan);
  return again.hash == first.hash && again.steps == first.steps;
}

bool runOne(const Arguments& arguments, const PlanOptions& plan, Outcome* outcome) {
  std::snprintf(lastWords, sizeof lastWords, "seed %llu failed: it ended the program\nAgain: %s\n",
                static_cast<unsigned long long>(plan.seed), commandOf(plan).c_str());
  *outcome = runWorld(plan, arguments.verbose);
  if (arguments.verbose) std::printf("%s%s", outcome->plan.c_str(), outcome->whole.c_str());
  if (outcome->complaint.empty() && arguments.twice) {
    const int64_t before = livingObjects();
    if (!sameAgain(plan, *outcome)) outcome->complaint = "the same seed ran otherwise the second time";
    const int64_t left = livingObjects() - before;
    if (outcome->complaint.empty() && left > 0)
      outcome->complaint = "the second run left " + std::to_string(left) + " objects on the heap";
  }
  if (outcome->complaint.empty()) return true;
  report(plan, *outcome);
  return false;
}

int runAll(const Arguments& arguments) {
  const auto began = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  PlanOptions plan = arguments.plan;
  uint64_t ran = 0, steps = 0, hash = 0, failed = 0;
  double lasted = 0;
  while (arguments.seconds > 0 ? spent() < arguments.seconds : ran < arguments.seeds) {
    Outcome outcome;
    if (!arguments.only.empty() && drawPlan(plan).text().find(arguments.only) == std::string::npos) {
      plan.seed++;
      continue;
    }
    if (!runOne(arguments, plan, &outcome)) return 1;
    ran++;
    plan.seed++;
    steps += outcome.steps;
    failed += outcome.failed;
    hash = hash * 31 + outcome.hash;
    lasted += std::chrono::duration<double>(outcome.lasted).count();
  }
  std::printf(
      "%llu worlds from seed %llu on: all held; %.1f s, %.0f worlds a minute, %llu steps, %.1f s of their "
      "own time, %llu ends failed as they had to, hash %016llx\n",
      static_cast<unsigned long long>(ran), static_cast<unsigned long long>(arguments.plan.seed), spent(),
      60 * static_cast<double>(ran) / spent(), static_cast<unsigned long long>(steps), lasted,
      static_cast<unsigned long long>(failed), static_cast<unsigned long long>(hash));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  hearCrashes();
  if (parse(argc, argv, &arguments)) return runAll(arguments);
  std::fprintf(
      stderr,
      "usage: simulate [--seed S] [--seeds N | --seconds T | --minutes T] [--ranks N] "
      "[--operations N] [--only WORDS] [--fabric loop|tcp|local] [--groups] [--daemons] [--refusals] "
      "[--no-hurts] [--twice] "
      "[--verbose]\n");
  return 2;
}
