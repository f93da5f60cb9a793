// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <string>
#include <vector>

#include "src/base/log.h"
#include "tests/support/catch.h"
#include "tests/support/sanitizer.h"
#include "tests/world/world.h"

// Whether the log names the culprit, in time, and nobody else: a job of four ranks in a ring, which one thing
// is done to, with the default settings and in virtual time.
using namespace weft;
using namespace weft::world;
using namespace std::chrono_literals;

namespace {

constexpr Nanoseconds kHurtAt = 6s;
constexpr Nanoseconds kInTime = 5s;
constexpr int kCulprit = 2;
constexpr size_t kWritten = 256 << 10;  // more than a window holds here, so it goes by CTS

struct Provoked {
  const char* name;
  HurtKind kind;
  size_t bytes;
  int rails = 1;
  bool receives = false;  // it is done to what the culprit receives, else to what it sends
  // What a line must have besides the culprit's name; null: no line may name anybody.
  const char* words = "";
  int thread = 0;  // pause: which one
};

// The names of ranks, and of those that a line blames only because they told it.
std::string nameOf(int rank) {
  return format("rank%d", rank);
}

WorldPlan ring(const Provoked& provoked, uint64_t seed) {
  WorldPlan plan;
  plan.seed = seed;
  plan.ranks = 4;
  plan.config.gdr = "off";
  plan.config.maxRails = 4;
  plan.config.windowKib = 128;
  plan.fabric.rails = provoked.rails;
  plan.fabric.landing = loop::Landing::whenPolled;
  plan.fabric.delivery = Delivery::selectable;
  plan.fabric.messages = provoked.rails == 1 && provoked.bytes < kWritten;
  plan.fabric.maxDepths = {4096, 16384};
  plan.latency = 50us;
  plan.idle = 25ms;
  plan.byWarnings = true;
  plan.breakable = true;
  uint64_t id = 0;
  for (int rank = 0; rank < plan.ranks; rank++) {
    FlowPlan flow{rank, (rank + 1) % plan.ranks, 0, {}, {}, 60ms, true};
    for (int i = 0; i < 150; i++) flow.groups.push_back({{++id, provoked.bytes, 0}});
    plan.flows.push_back(flow);
  }
  plan.endsAt = 18s;
  return plan;
}

// The ring's connections are numbered by their senders.
HurtPlan hurtOf(const Provoked& provoked) {
  HurtPlan hurt;
  hurt.kind = provoked.kind;
  hurt.at = kHurtAt;
  hurt.rank = kCulprit;
  hurt.lasts = provoked.kind == HurtKind::stop ? Nanoseconds(1h) : Nanoseconds(11s);
  const int flow = provoked.receives ? kCulprit - 1 : kCulprit;
  hurt.other = provoked.thread;
  if (provoked.kind == HurtKind::cut) hurt.other = 3;
  if (provoked.kind == HurtKind::abort || provoked.kind == HurtKind::misuse ||
      provoked.kind == HurtKind::withdraw || provoked.kind == HurtKind::wrongTag)
    hurt.other = flow;
  return hurt;
}

// What a line of the log blames: behind "verdict: ", or the whole of one that has no verdict.
std::string blameOf(const Warning& warning) {
  const size_t at = warning.text.find("verdict: ");
  const std::string blame = at == std::string::npos ? warning.text : warning.text.substr(at);
  return blame.find("this rank is late") == std::string::npos ? blame : blame + " " + nameOf(warning.rank);
}

// A line that blames the culprit, or one of a pair that it is part of.
bool namesIt(const Warning& warning, const Provoked& provoked) {
  const std::string blame = blameOf(warning);
  const bool its = blame.find(nameOf(kCulprit)) != std::string::npos || warning.rank == kCulprit;
  return its && blame.find(provoked.words) != std::string::npos;
}

// A line of a rank that is neither the culprit nor blames it. Those that tell of endings tell what happened.
bool namesAnother(const Warning& warning, const Provoked& provoked) {
  const std::string blame = blameOf(warning);
  if (provoked.kind == HurtKind::wrongTag || provoked.kind == HurtKind::misuse)  // either of two may be wrong
    if (blame.find(nameOf(provoked.receives ? kCulprit - 1 : kCulprit + 1)) != std::string::npos)
      return false;
  return warning.rank != kCulprit && blame.find(nameOf(kCulprit)) == std::string::npos;
}

struct Found {
  bool named = false;
  bool wrong = false;
  Nanoseconds after{};
  std::string log;
};

Found diagnose(const Provoked& provoked, uint64_t seed) {
  WorldPlan plan = ring(provoked, seed);
  plan.hurts.push_back(hurtOf(provoked));
  const Outcome outcome = runPlan(plan, false);
  Found found;
  if (!outcome.complaint.empty()) found.log = "COMPLAINT " + outcome.complaint + "\n";
  for (const Warning& warning : outcome.warnings) {
    if (warning.at >= plan.endsAt) break;
    found.log += format("  %7.3f s rank %d: %s\n", static_cast<double>(warning.at.count()) / 1e9,
                        warning.rank, warning.text.c_str());
    if (provoked.words ? namesAnother(warning, provoked) : true) found.wrong = true;
    if (!provoked.words || found.named || !namesIt(warning, provoked)) continue;
    found.named = true;
    found.after = warning.at - kHurtAt;
  }
  return found;
}

const std::vector<Provoked>& cases() {
  static const std::vector<Provoked> all = [] {
    std::vector<Provoked> made;
    for (const size_t bytes : {size_t{8}, size_t{4096}, size_t{65536}, kWritten}) {
      made.push_back({"killed", HurtKind::kill, bytes, 1, false, "gone"});
      made.push_back({"stopped", HurtKind::stop, bytes, 1, false, "answered"});
      made.push_back({"its GPU's kernel never comes", HurtKind::pause, bytes, 1, false});
      made.push_back({"the same, over two rails", HurtKind::pause, bytes, 2, false});
      made.push_back({"sends for another collective", HurtKind::wrongTag, bytes, 1, false});
      made.push_back({"the same, over two rails", HurtKind::wrongTag, bytes, 2, false});
      made.push_back({"is in another one than its sender", HurtKind::wrongTag, bytes, 1, true});
      made.push_back({"sends too much", HurtKind::misuse, bytes, 1, false, "bytes sent"});
      made.push_back({"posts too small a receive", HurtKind::misuse, bytes, 1, true, "bytes sent"});
      made.push_back({"its only rail dies", HurtKind::railGone, bytes, 1, false, "rail"});
      made.push_back({"its only rail is silent", HurtKind::railSilent, bytes, 1, false});
      made.push_back({"one of its two rails dies", HurtKind::railGone, bytes, 2, false, "rail"});
      made.push_back({"one of its two rails is silent", HurtKind::railSilent, bytes, 2, false, "rail"});
      made.push_back({"its rail is slow, and it moves", HurtKind::railSlow, bytes, 1, false, nullptr});
      made.push_back({"loses the control path to one", HurtKind::cut, bytes, 1, false, nullptr});
    }
    return made;
  }();
  return all;
}

}  // namespace

TEST_CASE("the log names the culprit within 5 s, and nobody else") {
  size_t provoked = 0, named = 0, wrong = 0;
  std::string failures;
  for (const Provoked& one : cases()) {
    const Found found = diagnose(one, provoked + 1);
    const bool inTime = one.words ? found.named && found.after <= kInTime : !found.wrong;
    provoked++;
    named += inTime;
    wrong += found.wrong;
    if (!inTime || found.wrong)
      failures += format("%s, %zu bytes: %s%s\n%s", one.name, one.bytes,
                         inTime        ? "named"
                         : found.named ? "named late"
                                       : "not named",
                         found.wrong ? ", and another one is" : "", found.log.c_str());
  }
  INFO(failures);
  WARN(format("%zu provoked, %zu named in time, %zu with another culprit", provoked, named, wrong));
  CHECK(provoked >= 40);
  CHECK(named * 100 >= provoked * 95);
  // A rail that swallows what its owner sends takes the CTS along: its peers then look late from there.
  CHECK(wrong * 20 <= provoked);
}

namespace {

// Threads that lose their processor, control paths that come back, and steps that take long, up to 2 s each.
WorldPlan noisyRing(uint64_t seed) {
  Provoked none{"noise", HurtKind::pause, 8, 1, false, nullptr};
  static constexpr size_t kSizes[] = {8, 4096, 65536};
  none.bytes = kSizes[seed % 3];
  none.rails = seed % 5 == 0 ? 2 : 1;
  WorldPlan plan = ring(none, seed);
  for (FlowPlan& flow : plan.flows) {
    flow.groups.resize(16);
    flow.pace = 20ms * (2 + seed % 4);
  }
  for (int rank = 0; rank < plan.ranks; rank++) {
    HurtPlan pause;
    pause.kind = (seed + static_cast<uint64_t>(rank)) % 4 == 0 ? HurtKind::cut : HurtKind::pause;
    pause.rank = rank;
    pause.other = pause.kind == HurtKind::cut ? (rank + 1) % 4 : static_cast<int>(seed % 3);
    pause.at = 200ms + Milliseconds((seed * 37 + static_cast<uint64_t>(rank) * 911) % 900);
    pause.lasts = 100ms * ((seed + static_cast<uint64_t>(rank) * 3) % 21);  // up to 2 s
    plan.hurts.push_back(pause);
  }
  plan.endsAt = {};
  return plan;
}

void checkQuiet(uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; seed++) {
    const WorldPlan plan = noisyRing(seed);
    const Outcome outcome = runPlan(plan, false);
    INFO("seed " << seed << "\n" << outcome.plan << outcome.complaint);
    REQUIRE(outcome.complaint.empty());
    const std::string warning = outcome.warnings.empty() ? "" : outcome.warnings.front().text;
    REQUIRE(warning.empty());
  }
}

}  // namespace

TEST_CASE("a healthy job with noise has no culprit") {
  checkQuiet(1, test::kSanitized ? 10 : 50);
}

// A test of its own where the build is optimized.
TEST_CASE("nor has any of a thousand", "[.]") {
  checkQuiet(1, 1000);
}
