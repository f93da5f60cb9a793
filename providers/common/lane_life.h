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

// The life of a lane, from its making until it is fenced: one table for all fabrics. An Endpoint holds a
// LaneLife and tells it what happened; the LaneLife alone changes the state, calls the Endpoint's hooks,
// reports what the seam promises, keeps the deadline and logs each change. Used by the Queue's thread.
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
  broke,       // the lane ended, and no work is known that failed with it
  workFailed,  // a work failed, which the Endpoint has reported; the lane ends with it
  retire,      // the protocol wants it fenced
  fenced,      // nothing that this end posted can land any more
  deadline,    // the state took too long, or what it waits for will never come
  cut,         // once more: the fence of a lane whose `retired` said that it could not be had
};
constexpr size_t kLaneEvents = 9;

const char* nameOf(LaneState state);
const char* nameOf(LaneEvent event);

// The state that follows a state by an event. Where it is the same, the event is stale and means nothing.
// Each row is a state, each column an event, in the order of the enums:
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
  // The hooks of an Endpoint, called as its state changes; the new state is in effect. They raise no event,
  // except that startFence may say at once that the lane is fenced.
  class Host {
   public:
    virtual ~Host() = default;
    // To `dead`, from connecting or ready: what was promised to the peer is taken back, and all works that
    // have not ended are reported as failed. Returns how many there were.
    virtual size_t dropOutstanding(LaneState from, int error, const std::string& why) = 0;
    // To `retiring`: begins what `fenced` looks for, and wants progress() called from now on.
    virtual void startFence(LaneState from) = 0;
    // In `retiring`: nothing while the fence is under way, 0 when it is passed, an errno when it never will
    // be. `late`: the deadline has passed.
    virtual std::optional<int> fenced(TimePoint now, bool late) = 0;
    // To `retired`: works that are still open are reported as failed, and the fabric's objects let go.
    virtual void endFence(bool passed) = 0;
    // A completion for the Queue to hand out; `why` in words where it is not ok.
    virtual void report(const Completion& completion, const std::string& why) = 0;
    // "connecting to PEER over CARD: why", as users read it.
    virtual std::string named(const char* what, const std::string& why) const = 0;
    virtual Endpoint& endpoint() = 0;
  };

  // How long a lane waits, and its words for what did not come in that time.
  struct Terms {
    Nanoseconds connect;
    Nanoseconds close;
    const char* noAnswer = "no answer within WEFT_CONNECT_TIMEOUT";
    const char* notFenced = "the peer did not acknowledge";
  };

  LaneLife(Host& host, const Clock& clock, const Terms& terms) : host_(host), clock_(clock), terms_(terms) {}

  LaneState state() const { return state_; }
  bool ready() const { return state_ == LaneState::ready; }
  TimePoint deadline() const { return deadline_; }

  // The one place that changes the state. False: the event means nothing in this state. `error` and `why` say
  // why a lane ends; for `fenced` and `connect` there is nothing to say.
  bool apply(LaneEvent event, int error = 0, const std::string& why = {});

  // An error where the lane was connected before.
  Status mayConnect() const;
  // Ends what took too long, and asks for the fence; false when there is nothing more to do.
  bool progress(TimePoint now);
  // The fence gets its whole time once more: it goes on in another way.
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
  TimePoint deadline_{};  // of connecting and retiring
};

}  // namespace weft
