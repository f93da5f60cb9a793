// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "src/core/net.h"
#include "tests/world/ground.h"
#include "tests/world/plan.h"
#include "tests/world/refusals.h"
#include "tools/world/scheduler.h"

// One end of a connection, as a thread of NCCL has it: it connects, posts what its flow says in a legal
// order, tests, and closes. It checks every byte it was given, that nothing around a receive is touched, and
// that what was handed back is not written again. Belongs to one task of one rank.
namespace weft::world {

// What both ends of a flow may know of each other, as a job's bootstrap would tell them.
struct Meeting {
  std::optional<std::array<std::byte, control::kHandleBytes>> handle;
  bool receiverGone = false;
  bool senderGone = false;
};

enum class EndState : uint8_t { connecting, running, done, failed, closed };

// How it ended, for the oracles.
struct EndReport {
  bool failed = false;
  bool aborted = false;
  bool misused = false;  // it has sent too much
  TimePoint when{};
  std::string why;
  size_t messages = 0;    // that ended well
  Nanoseconds closing{};  // so long it took
};

// The surroundings of an end.
struct EndWorld {
  Scheduler& scheduler;
  core::Net& net;
  Ground& ground;
  core::ContextRef context;
  int device = 0;
  int rank = 0;
  bool calm = false;   // nothing is done to anybody
  bool apart = false;  // each place is registered by itself
  Refusal* refusal = nullptr;
};

class End {
 public:
  End(const EndWorld& world, const FlowPlan& flow, Meeting& meeting, std::string name);
  virtual ~End() = default;

  bool step();   // takes the next step that can be taken; false: there was none
  void close();  // waits, as NCCL's call does; again is harmless
  void abort() { aborting_ = true; }
  void misuse() { misusing_ = true; }
  void withdraw() { withdrawing_ = true; }
  void turnAway() { wrongTag_ = true; }
  void follow(const End* received) { follows_ = received; }
  // All ranks rest, and everything has been polled for a while: what was used has come back.
  virtual void checkRested() {}
  bool over() const { return state_ == EndState::done || state_ == EndState::failed; }
  bool closed() const { return state_ == EndState::closed; }
  EndState state() const { return state_; }
  const core::ContextRef& context() const { return world_.context; }
  const FlowPlan& flow() const { return flow_; }
  const EndReport& report() const { return report_; }
  const std::string& name() const { return name_; }
  // What the end saw that must not be; empty: nothing.
  const std::string& complaint() const { return complaint_; }
  virtual std::string progress() const = 0;

 protected:
  // A call of NCCL's; empty: it had no memory, and the plugin said so.
  template <class Call>
  auto called(const Call& call) -> std::optional<decltype(call())> {
    try {
      const Refusing here(world_.refusal);
      return call();
    } catch (const std::bad_alloc&) {
      fail(Error(Code::resources, "calling", "there is no memory"));
      return std::nullopt;
    }
  }
  virtual bool connect() = 0;
  virtual bool run() = 0;
  virtual void drop() = 0;  // closes the comm
  virtual core::Comm* comm() = 0;
  virtual void checkRest() {}
  virtual void sayGone() = 0;

  void fail(const Error& why);
  void finish();
  void complain(const std::string& what);
  void note(const std::string& words);
  bool prepare(size_t places, size_t bytes);  // memory of that many pieces, registered
  std::byte* place(size_t index) { return area_.data() + index * stride_; }
  core::MemoryHandle* memoryOf(size_t index) const { return handles_[handles_.size() == 1 ? 0 : index]; }
  void release(size_t index);
  void checkCounters();
  bool mayPost() const {
    return world_.scheduler.now() >= postsFrom_ && (!follows_ || posts_ <= follows_->report_.messages);
  }
  void hasPosted();

  EndWorld world_;
  const FlowPlan& flow_;
  Meeting& meeting_;
  const std::string name_;
  const TimePoint made_;
  EndState state_ = EndState::connecting;
  EndReport report_;
  std::string complaint_;
  bool aborting_ = false;
  bool misusing_ = false;     // the next message is too large
  bool withdrawing_ = false;  // the memory of a receive that is posted is to go
  bool wrongTag_ = false;     // what is sent has another tag than the receiver knows
  TimePoint postsFrom_{};
  size_t posts_ = 0;
  const End* follows_ = nullptr;  // null: it sends what it has
  size_t stride_ = 0;
  std::span<std::byte> area_;
  std::vector<core::MemoryHandle*> handles_;  // of all places, or of each; null: released
};

std::unique_ptr<End> makeSender(const EndWorld& world, const FlowPlan& flow, Meeting& meeting);
std::unique_ptr<End> makeReceiver(const EndWorld& world, const FlowPlan& flow, Meeting& meeting);

}  // namespace weft::world
