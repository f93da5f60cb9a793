// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "src/base/clock.h"
#include "weft/transport.h"

// The life of a lane, from its making until it is fenced: a single table for all fabrics. An Endpoint owns a
// LaneLife and tells it the events. The LaneLife alone changes the state, calls the Endpoint's hooks, reports
// what the seam promises, keeps the deadline, and logs each change. Used by the Queue's thread.
namespace weft {

enum class LaneState : uint8_t {
  idle,        // made; its address is known, its peer is not
  connecting,  // connect() was called; `connected` is owed
  ready,       // carries works
  dead,        // carries nothing any more; waits to be retired
  retiring,    // the fence is under way; `retired` is owed
  retired,     // `retired` was reported
};
constexpr size_t kLaneStates = 6;

enum class LaneEvent : uint8_t {
  connect,     // the protocol named the peer
  stands,      // both ends are ready
  refused,     // connecting failed
  broke,       // the lane ended, and no work is known to have failed with it
  workFailed,  // a work failed, which the Endpoint has reported; the lane ends with it
  retire,      // the protocol wants it fenced
  fenced,      // nothing that this end posted can land any more
  deadline,    // the state took too long, or its event will never come
  cut,         // fence once more: the lane's `retired` said that the fence could not be had
};
constexpr size_t kLaneEvents = 9;

const char* nameOf(LaneState state);
const char* nameOf(LaneEvent event);

// The state that follows a state by an event. Where it is the same state, the event is stale and has no
// effect. Each row is a state, each column an event, in the order of the enums:
//   connect, stands, refused, broke, workFailed, retire, fenced, deadline, cut
constexpr std::array<std::array<LaneState, kLaneEvents>, kLaneStates> nextLaneStates() {
  using enum LaneState;
  return {{
      {connecting, idle, dead, dead, idle, retiring, idle, idle, idle},
      {connecting, ready, dead, dead, dead, retiring, connecting, dead, connecting},
      {ready, ready, ready, dead, dead, retiring, ready, ready, ready},
      {dead, dead, dead, dead, dead, retiring, dead, dead, dead},
      {retiring, retiring, retiring, retiring, retiring, retiring, retired, retired, retiring},
      {retired, retired, retired, retired, retired, retired, retired, retired, retiring},
  }};
}

class LaneLife {
 public:
  // The hooks of an Endpoint, called when its state has changed. They raise no event, except that startFence
  // may say at once that the lane is fenced.
  class Host {
   public:
    virtual ~Host() = default;
    // To `dead`, from connecting or ready: takes back what was promised to the peer, and reports all works
    // that have not ended as failed. Returns their number.
    virtual size_t dropOutstanding(LaneState from, int error, const std::string& why) = 0;
    // To `retiring`: begins the fence. From now on progress() has to be called.
    virtual void startFence(LaneState from) = 0;
    // In `retiring`: nothing while the fence is under way, 0 when it has passed, an errno when it never will.
    // `late`: the deadline has passed.
    virtual std::optional<int> fenced(TimePoint now, bool late) = 0;
    // To `retired`: reports works that are still open as failed, and lets the fabric's objects go.
    virtual void endFence(bool passed) = 0;
    // Queues a completion for the Queue to hand out. `why`: the words where it is not ok.
    virtual void report(const Completion& completion, const std::string& why) = 0;
    // "connecting to PEER over CARD: why", in users' words.
    virtual std::string named(const char* what, const std::string& why) const = 0;
    virtual Endpoint& endpoint() = 0;
  };

  // The times that a lane waits, and the words for an answer that did not come in time.
  struct Terms {
    Nanoseconds connect;  // for the other end to stand
    Nanoseconds close;    // for the fence
    const char* noAnswer = "no answer within WEFT_CONNECT_TIMEOUT";
    const char* notFenced = "the peer did not acknowledge";
  };

  LaneLife(Host& host, const Clock& clock, const Terms& terms) : host_(host), clock_(clock), terms_(terms) {}

  LaneState state() const { return state_; }
  bool ready() const { return state_ == LaneState::ready; }
  TimePoint deadline() const { return deadline_; }

  // The one function that changes the state. False: the event has no effect in this state. `error` and `why`
  // say why a lane ends; `connect` and `fenced` need neither.
  bool apply(LaneEvent event, int error = 0, const std::string& why = {});

  // An error where the lane was connected before.
  Status mayConnect() const;
  // Ends a state that took too long, and asks for the fence. False: nothing remains to be done.
  bool progress(TimePoint now);
  // Gives the fence its whole time once more, where it goes on in another way.
  void restartFence() { deadline_ = clock_.now() + terms_.close; }

 private:
  void enter(LaneState to, LaneEvent event, const std::string& why);
  void die(LaneState from, LaneEvent event, int error, const std::string& why);
  void retired(bool passed, int error);
  void tell(CompletionKind kind, int error, const char* what, const std::string& why);

  Host& host_;
  const Clock& clock_;
  const Terms terms_;
  LaneState state_ = LaneState::idle;
  TimePoint deadline_{};  // of the states connecting and retiring
};

}  // namespace weft
