// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/net/sockets.h"
#include "src/coll/wire.h"
#include "src/core/net.h"

// A connection to one other rank, or to a daemon: a sending and a receiving comm of the network below, over
// which rails, fail-over and registration come by themselves. Used by a single thread at a time.
namespace weft::coll {

constexpr int kControlTag = 0;  // control messages; data has the tags from 1 on

// The deadline of a wait, and how the waiting thread spends its time until then: it yields at first and
// sleeps later, both by the clock.
class Patience {
 public:
  Patience(const Clock& clock, Milliseconds time) : clock_(clock), until_(clock.now() + time) {}
  bool over() const { return clock_.now() >= until_; }
  Deadline deadline() const { return {clock_, until_}; }  // the same, for sockets
  void pause();

 private:
  const Clock& clock_;
  TimePoint until_;
  int spins_ = 0;
};

// Memory for messages of our own, registered on some comms until it goes, which must be before them.
class Staging {
 public:
  Staging() = default;
  Staging(Staging&& other) noexcept { *this = std::move(other); }
  Staging& operator=(Staging&& other) noexcept {
    bytes_.swap(other.bytes_);
    std::swap(size_, other.size_);
    uses_.swap(other.uses_);
    return *this;
  }
  ~Staging();
  static Result<Staging> create(size_t bytes);
  Result<core::MemoryHandle*> registerOn(core::Comm& comm);
  void releaseFrom(const core::Comm& comm);  // before that goes
  std::byte* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

 private:
  struct Use {
    core::Comm* comm;
    core::MemoryHandle* handle;
  };
  std::unique_ptr<std::byte[]> bytes_;
  size_t size_ = 0;
  std::vector<Use> uses_;
};

class Pipe {
 public:
  // The knowledge of the other end. A state never goes back, and enter() is all that changes it, so every
  // question gets the same answer, however often it is asked.
  enum class State : uint8_t {
    open,
    left,     // it said goodbye: nothing more comes
    alarmed,  // it said that the group is broken: alarm() is what it said
    broken,   // the connection failed: errorOf(receiving()) says why
  };

  // Either comm may come later; `name` is that of the other end.
  static Result<std::unique_ptr<Pipe>> create(std::unique_ptr<core::SendComm> send,
                                              std::unique_ptr<core::RecvComm> receive, std::string name,
                                              const Clock& clock);

  // A pipe that sends and a pipe that receives become a pipe that does both.
  static Result<std::unique_ptr<Pipe>> join(std::unique_ptr<Pipe> sends, std::unique_ptr<Pipe> receives);

  core::SendComm& sending() const { return *send_; }
  core::RecvComm& receiving() const { return *receive_; }
  const std::string& name() const { return name_; }
  const Clock& clock() const { return *clock_; }

  // Control messages, at most kControlBytes. Each direction has one under way at a time: what is told while
  // an earlier message still leaves waits until that has left. A message whose patience ends stays in line,
  // and leaves when it can.
  Status tell(const Bytes& message, Patience& patience);
  Result<Bytes> hear(Patience& patience);
  // Posts the receive for the next message. Two ends that tell each other something expect it first: without
  // eager messages none leaves before its receive is posted.
  Status expect(Patience& patience);

  // Posts the receive for the next message if that can be now. A group does so as soon as it has its
  // connections: a goodbye that is here before the connection ends is then never missed.
  void listen() {
    if (state_ == State::open && !post()) enter(State::broken);
  }

  // The one look at the other end: sends what waits to leave, and takes a control message that is here. A
  // message that comes outside of hear() is an alarm or a goodbye.
  State look();
  State state() const { return state_; }
  const Alarm& alarm() const { return alarm_; }  // in state alarmed
  bool saidGoodbye() const { return state_ == State::left; }

  // Tells the other end without waiting for it: that the group is broken, or goodbye. Leaves at once where
  // that can be, else with the looks that follow.
  void raiseAlarm(const Bytes& alarm);
  void repeatAlarm();

  // The error of the comm that broke, with the name of the other end.
  Error errorOf(const core::Comm& comm) const;

 private:
  Status post();
  Status push();
  void enter(State next);
  void take(std::span<const std::byte> message);

  std::unique_ptr<core::SendComm> send_;
  std::unique_ptr<core::RecvComm> receive_;
  std::string name_;
  const Clock* clock_ = nullptr;
  Staging out_, in_;  // go before the comms
  core::MemoryHandle* outMemory_ = nullptr;
  core::MemoryHandle* inMemory_ = nullptr;
  core::Request* hearing_ = nullptr;  // the receive into in_, once it is posted
  std::deque<Bytes> unsaid_;          // messages that have not left yet, oldest first
  core::Request* saying_ = nullptr;   // the send of the oldest one out of out_, once it is under way
  State state_ = State::open;
  Alarm alarm_;
};

}  // namespace weft::coll
