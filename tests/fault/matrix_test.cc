// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "providers/fault/control.h"
#include "providers/fault/transport.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/base/random.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"
#include "tests/support/sanitizer.h"

// Scenario x fault. Every cell ends: either all data is whole, or both ends fail with an error that names a
// rail and the peer, in bounded time. A fault that kills one of several rails is survived. No byte outside a
// posted receive is ever touched, and what a receive reported done is right. A cell counts only if the
// fault's own counter shows that it hit while payload was outstanding.
using namespace weft;
using namespace weft::core;
using namespace weft::test;
using fault::FaultKind;
using fault::FaultOp;

namespace {

struct Scenario {
  const char* name;
  std::vector<size_t> sizes;  // repeated
  int messages;
  int group = 1;  // receives a request
  int tags = 1;
  int depth = 4;  // messages in flight
  int rails = 1;
  bool bothWays = false;
  int flows = 1;        // comms on the one peering
  int receiverLag = 0;  // passes between a send being possible and its receive being posted
  int eagerMax = 8192;
};

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = {
      {"small messages", {1, 64, 4096}, 120},
      {"large messages", {65'536}, 40},
      {"around the eager limit", {8191, 8192, 8193}, 60},
      {"empty among large", {0, 30'000}, 60},
      {"groups of eight", {20'000}, 64, 8, 8, 16},
      {"several tags", {500, 40'000}, 80, 1, 5, 10},
      {"32 in flight", {12'000}, 120, 1, 1, 32},
      {"slow receiver", {900, 50'000}, 40, 1, 1, 8, 1, false, 1, 20},
      {"both directions", {3000, 60'000}, 60, 1, 1, 4, 1, true},
      {"three connections on one lane", {2000, 25'000}, 40, 1, 1, 4, 1, false, 3},
      {"striped over two rails", {400'000}, 24, 1, 1, 4, 2},
      {"no eager, two rails", {700, 9000}, 60, 1, 1, 8, 2, false, 1, 0, 0},
      {"small messages, two rails", {1, 64, 4096}, 120, 1, 1, 4, 2},
      {"empty among large, three rails", {0, 300'000}, 40, 1, 1, 8, 3},
      {"groups of eight, both directions, two rails", {20'000, 500}, 64, 8, 8, 16, 2, true},
      {"three connections, slow receiver, two rails", {2000, 150'000}, 40, 1, 1, 8, 2, false, 3, 20},
  };
  return all;
}

struct Fault {
  const char* name;
  FaultKind kind;
  FaultOp op;
  bool lethal;  // a message may be lost: errors are expected
  uint32_t polls = 0;
  uint64_t count = 1;
  bool spared = false;  // not lethal where another rail is left
};

const Fault kFaults[] = {
    {"notified writes vanish", FaultKind::drop, FaultOp::writeNotify, true},
    {"notified writes fail", FaultKind::error, FaultOp::writeNotify, true, 0, 1, true},
    {"writes land but report failure", FaultKind::errorLanded, FaultOp::writeNotify, true, 0, 1, true},
    {"the lane is killed", FaultKind::kill, FaultOp::writeNotify, true, 0, 1, true},
    {"the lane is killed, its writes land late", FaultKind::killLate, FaultOp::writeNotify, true, 0, 1, true},
    {"the lane dies silently", FaultKind::killSilent, FaultOp::writeNotify, true, 0, 1, true},
    {"notifications are dropped", FaultKind::drop, FaultOp::notified, true},
    {"notifications come twice", FaultKind::duplicate, FaultOp::notified, false, 0, 5},
    {"writes are posted twice", FaultKind::duplicate, FaultOp::writeNotify, false, 0, 5},
    {"writes are delayed", FaultKind::delay, FaultOp::writeNotify, false, 7, 9},
    {"writes overtake each other", FaultKind::reorder, FaultOp::writeNotify, false, 3, 9},
    {"writes complete before they land", FaultKind::early, FaultOp::writeNotify, false, 5, 9},
    {"post takes nothing for a while", FaultKind::refuse, FaultOp::any, false, 0, 4},
    {"completions are late", FaultKind::delay, FaultOp::sent, false, 6, 4},
};

constexpr size_t kGuard = 256;
constexpr std::byte kGuardByte{0xc5};

// One connection's traffic: posts receives and sends as depth and lag allow, checks what comes out.
class Flow {
 public:
  Flow(World& world, int from, const Scenario& scenario, uint64_t seed)
      : scenario_(scenario), seed_(seed), link_(world.connect(from)) {
    size_t largest = 0;
    for (const size_t size : scenario.sizes) largest = std::max(largest, size);
    stride_ = largest + 2 * kGuard;
    places_ = static_cast<size_t>(scenario.depth) + 8;
    out_ = std::make_unique<Buffer>(*link_.send, stride_ * places_);
    in_ = std::make_unique<Buffer>(*link_.recv, stride_ * places_);
    std::fill_n(in_->data(), in_->size(), kGuardByte);
  }

  bool failed() const { return link_.send->failed() || link_.recv->failed(); }
  bool done() const { return received_ == scenario_.messages && sent_ == scenario_.messages; }
  SendCommImpl& sender() { return *link_.send; }
  RecvCommImpl& receiver() { return *link_.recv; }

  void step() {
    if (steps_++ >= scenario_.receiverLag) postReceives();
    postSends();
    test();
  }

  // Everything around the posted receives is as it was.
  bool guardsHold() const {
    for (size_t place = 0; place < places_; place++) {
      for (size_t i = 0; i < kGuard; i++) {
        if (in_->data()[place * stride_ + i] != kGuardByte) return false;
        if (in_->data()[place * stride_ + stride_ - 1 - i] != kGuardByte) return false;
      }
    }
    return true;
  }

 private:
  struct Pending {
    Request* request;
    int first;
    int count;
  };

  size_t sizeOf(int message) const {
    return scenario_.sizes[static_cast<size_t>(message) % scenario_.sizes.size()];
  }
  int tagOf(int message) const { return message % scenario_.tags; }
  std::byte* place(Buffer& buffer, int message) const {
    return buffer.data() + static_cast<size_t>(message) % places_ * stride_ + kGuard;
  }

  void postReceives() {
    while (!failed() && posted_ < scenario_.messages &&
           posted_ - received_ + scenario_.group <= scenario_.depth + 4) {
      std::vector<ReceiveSpec> specs;
      const int count = std::min(scenario_.group, scenario_.messages - posted_);
      for (int i = 0; i < count; i++) {
        const int message = posted_ + i;
        specs.push_back({place(*in_, message), sizeOf(message), tagOf(message), in_->handle(), nullptr});
      }
      const Posted posted = link_.recv->irecv(specs);
      if (!posted.request) return;
      receives_.push_back({posted.request, posted_, count});
      posted_ += count;
    }
  }

  void postSends() {
    while (!failed() && next_ < scenario_.messages && next_ - sent_ < scenario_.depth &&
           next_ - received_ < scenario_.depth) {
      fillPattern(place(*out_, next_), sizeOf(next_), seed_ + static_cast<uint64_t>(next_));
      const Posted posted =
          link_.send->isend(place(*out_, next_), sizeOf(next_), tagOf(next_), out_->handle(), nullptr);
      if (!posted.request) return;
      sends_.push_back({posted.request, next_, 1});
      next_++;
    }
  }

  void test() {
    while (!sends_.empty() && !failed() && link_.send->test(sends_.front().request, nullptr).done) {
      sends_.erase(sends_.begin());
      sent_++;
    }
    while (!receives_.empty() && !failed()) {
      int sizes[8] = {};
      const Pending pending = receives_.front();
      if (!link_.recv->test(pending.request, sizes).done) return;
      for (int i = 0; i < pending.count; i++) check(pending.first + i, sizes[i]);
      receives_.erase(receives_.begin());
      received_ += pending.count;
    }
  }

  void check(int message, int size) {
    REQUIRE(size == static_cast<int>(sizeOf(message)));
    std::byte* data = place(*in_, message);
    REQUIRE(firstMismatch(data, sizeOf(message), seed_ + static_cast<uint64_t>(message)) == sizeOf(message));
    std::fill_n(data, stride_ - 2 * kGuard, kGuardByte);
  }

  Scenario scenario_;
  uint64_t seed_;
  Connection link_;
  size_t stride_ = 0;
  size_t places_ = 0;
  std::unique_ptr<Buffer> out_, in_;
  std::vector<Pending> sends_, receives_;
  int steps_ = 0, posted_ = 0, next_ = 0, sent_ = 0, received_ = 0;
};

class Cell {
 public:
  Cell(const Scenario& scenario, const Fault& fault, uint64_t seed)
      : scenario_(scenario), fault_(fault), seed_(seed) {}

  uint64_t writtenAgain() const { return writtenAgain_; }

  fault::FaultCounts run() {
    World world(options());
    std::vector<std::unique_ptr<Flow>> flows;
    for (int i = 0; i < scenario_.flows; i++) {
      flows.push_back(std::make_unique<Flow>(world, 0, scenario_, seed_ + 1000 * static_cast<uint64_t>(i)));
      if (scenario_.bothWays) flows.push_back(std::make_unique<Flow>(world, 1, scenario_, seed_ + 77));
    }
    arm();
    bool failed = false;
    int steps = 0;
    for (; steps < 60'000 && !over(flows, &failed); steps++) {
      for (auto& flow : flows) flow->step();
      world.pump();
      // As the control thread would: look for stalls now and then, with the clock running.
      if (steps % 16 == 0) {
        world.clock().advance(std::chrono::milliseconds(1));
        world.watch(0), world.watch(1);
      }
    }
    INFO("after " << steps << " steps; " << state_->text());
    judge(flows, failed, steps);
    for (int i = 0; i < 2; i++) {
      const EngineCounters& counters = world.side(i).engine->counters();
      writtenAgain_ += counters.segmentsAgain + counters.eagerAgain;
    }
    for (auto& control : controls_) control->clear();
    return state_->counts();
  }

 private:
  WorldOptions options() {
    WorldOptions world;
    world.config.laneTimeout = Milliseconds(40);
    world.config.eagerMaxBytes = scenario_.eagerMax;
    for (int i = 0; i < 2; i++) {
      loop::LoopOptions fabric;
      fabric.rails = scenario_.rails;
      fabric.landing = loop::Landing::whenPolled;
      fabric.delivery = scenario_.rails > 1 ? Delivery::selectable : Delivery::accepted;
      fabric.seed = seed_;
      auto wrapped = fault::makeTransport(loop::makeTransport(fabric));
      controls_.push_back(wrapped->control());
      world.transports[i] = std::move(wrapped);
      world.rails[i] = scenario_.rails;
    }
    return world;
  }

  // On the sender's transport, or for what happens to notifications, on the receiver's.
  void arm() {
    fault::FaultRule rule;
    rule.kind = fault_.kind;
    rule.op = fault_.op;
    rule.count = fault_.count;
    rule.nth = 1 + SeededRandom(seed_).below(12);
    if (fault_.polls > 0) rule.polls = fault_.polls;
    if (fault_.kind == FaultKind::refuse) rule.times = 25;
    state_ = controls_[fault_.op == FaultOp::notified ? 1 : 0]->add(rule);
  }

  static bool over(const std::vector<std::unique_ptr<Flow>>& flows, bool* failed) {
    bool over = true;
    *failed = false;
    for (const auto& flow : flows) {
      const bool bothFailed = flow->sender().failed() && flow->receiver().failed();
      over = over && (flow->done() || bothFailed);
      *failed = *failed || bothFailed;
    }
    return over;
  }

  void judge(const std::vector<std::unique_ptr<Flow>>& flows, bool failed, int steps) {
    CHECK(steps < 60'000);
    for (const auto& flow : flows) {
      CHECK(flow->guardsHold());
      if (!flow->done()) CHECK(failed);
    }
    if (!fault_.lethal || (fault_.spared && scenario_.rails > 1)) CHECK_FALSE(failed);
    for (const auto& flow : flows) {
      if (!flow->sender().failed()) continue;
      const std::string text =
          flow->sender().stickyError().message() + flow->receiver().stickyError().message();
      CHECK(text.find("rail loop") != std::string::npos);
      CHECK(text.find("pid 100") != std::string::npos);
    }
  }

  const Scenario& scenario_;
  const Fault& fault_;
  uint64_t seed_;
  std::vector<std::shared_ptr<fault::FaultControl>> controls_;
  std::shared_ptr<fault::RuleState> state_;
  uint64_t writtenAgain_ = 0;  // messages and segments, after their lane was left
};

int seedsPerCell() {
  if (environmentValue("WEFT_TEST_FULL")) return 40;
  return kSanitized ? 1 : 2;
}

void silent(LogLevel, const char*, int, const char*) {}  // errors are announced: they are what is tested

}  // namespace

TEST_CASE("every scenario survives every fault or fails cleanly") {
  setLogSink(silent);
  for (const Fault& fault : kFaults) {
    uint64_t hits = 0, outstanding = 0, again = 0;
    int cells = 0;
    for (const Scenario& scenario : scenarios()) {
      // Between rails writes are asked to be delivered, which a fabric that completes early would not offer.
      if (fault.kind == FaultKind::early && scenario.rails > 1) continue;
      for (int i = 0; i < seedsPerCell(); i++) {
        const uint64_t seed = 4711 + static_cast<uint64_t>(i);
        INFO(scenario.name << " / " << fault.name << ", seed " << seed);
        Cell cell(scenario, fault, seed);
        const fault::FaultCounts counts = cell.run();
        CHECK(counts.hits > 0);
        hits += counts.hits;
        outstanding += counts.works;
        again += cell.writtenAgain();
        cells++;
      }
    }
    std::printf("%-42s %3d cells, hit %4llu times with %llu works outstanding, %llu written again\n",
                fault.name, cells, static_cast<unsigned long long>(hits),
                static_cast<unsigned long long>(outstanding), static_cast<unsigned long long>(again));
    CHECK(outstanding >= hits);
    // What landed all the same is not asked for.
    if (fault.spared && fault.kind != FaultKind::errorLanded) CHECK(again > 0);
  }
  setLogSink(nullptr);
}
