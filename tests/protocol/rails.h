// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "providers/fault/control.h"
#include "providers/fault/transport.h"
#include "src/base/log.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// A connection over rails of the loop provider that break as they are told, on a clock of the test's.
namespace weft::test {

constexpr size_t kLarge = 400'000;  // bytes; striped over two rails

// A rail that is left is reported; here it is planned.
inline void silent(LogLevel, const char*, int, const char*) {}

struct RailsOptions {
  const fault::FaultRule* atOnce = nullptr;  // on side 0 from the beginning
  bool targetMustKnow = false;
  Milliseconds connectTimeout{20000};
  bool flush = false;  // host memory too
};

class Rails {
 public:
  explicit Rails(int rails, const RailsOptions& more = {}) : world_(options(rails, more)) {
    link_ = world_.connect(0);
  }

  World& world() { return world_; }
  core::SendCommImpl& send() { return *link_.send; }
  core::RecvCommImpl& recv() { return *link_.recv; }
  const core::EngineCounters& counters(int side) { return world_.side(side).engine->counters(); }
  core::Lane& lane(int side, size_t i) { return (side == 0 ? send().peering() : recv().peering()).lane(i); }
  size_t lanesUp(int side) { return (side == 0 ? send().peering() : recv().peering()).lanesUp(); }

  std::shared_ptr<fault::RuleState> addRule(int side, const fault::FaultRule& rule) {
    return controls_[side]->add(rule);
  }
  std::shared_ptr<fault::RuleState> breakRail(int side, fault::FaultKind kind, fault::FaultOp op, int rail,
                                              uint32_t polls = 0) {
    fault::FaultRule rule;
    rule.kind = kind;
    rule.op = op;
    rule.rail = rail;
    if (polls > 0) rule.polls = polls;
    return addRule(side, rule);
  }
  void heal() {
    for (auto& control : controls_) control->clear();
  }

  // Passes with a millisecond each, as the control thread's ticks.
  void live(int milliseconds) {
    for (int i = 0; i < milliseconds; i++) {
      world_.clock().advance(Milliseconds(1));
      world_.watch(0), world_.watch(1);
      world_.pump();
    }
  }

  core::Request* receive(Buffer& to, size_t bytes, int tag = 1) {
    const core::ReceiveSpec spec{to.data(), bytes, tag, to.handle(), nullptr};
    const core::Posted posted = recv().irecv(std::span(&spec, 1));
    REQUIRE(posted.request);
    return posted.request;
  }
  core::Request* post(Buffer& from, size_t bytes, int tag = 1) {
    for (int i = 0; i < 1000; i++) {
      const core::Posted posted = send().isend(from.data(), bytes, tag, from.handle(), nullptr);
      REQUIRE(posted.ok);
      if (posted.request) return posted.request;
      live(1);
    }
    FAIL("the message was never taken");
    return nullptr;
  }
  void closeSender() { link_.send->close(); }
  bool finished(core::CommBase& comm, core::Request* request) {
    for (int i = 0; i < 3000; i++) {
      const core::Tested tested = comm.testRequest(request, nullptr);
      REQUIRE(tested.ok);
      if (tested.done) return true;
      live(1);
    }
    return false;
  }

 private:
  WorldOptions options(int rails, const RailsOptions& more) {
    setLogSink(silent);
    WorldOptions options;
    options.config.laneTimeout = Milliseconds(400);
    options.config.railTimeout = Milliseconds(80);
    options.config.railRetry = Milliseconds(10);
    options.config.connectTimeout = more.connectTimeout;
    options.config.alwaysFlush = more.flush;
    for (int i = 0; i < 2; i++) {
      loop::LoopOptions fabric;
      fabric.rails = rails;
      fabric.landing = loop::Landing::whenPolled;
      fabric.delivery = Delivery::selectable;
      fabric.targetMustKnow = more.targetMustKnow;
      auto wrapped = fault::makeTransport(loop::makeTransport(fabric));
      if (more.atOnce && i == 0) wrapped->control()->add(*more.atOnce);
      controls_[i] = wrapped->control();
      options.transports[i] = std::move(wrapped);
      options.rails[i] = rails;
    }
    return options;
  }

  // To the last, as closing speaks too.
  struct Silence {
    Silence() { setLogSink(silent); }
    ~Silence() { setLogSink(nullptr); }
  };

  Silence silence_;
  std::shared_ptr<fault::FaultControl> controls_[2];
  World world_;
  Connection link_;
};

}  // namespace weft::test
