// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/net/sockets.h"
#include "src/coll/wire.h"
#include "src/core/net.h"

// A connection to another rank, or to a daemon: a sending and a receiving comm of the network below. Those
// comms see to rails, fail-over and registration. Used by a single thread at a time.
namespace weft::coll {

constexpr int kControlTag = 0;  // of control messages; data has the tags from 1 on

// The deadline of a wait, and the way in which the waiting thread spends its time: it yields at first and
// sleeps later, both by the clock.
class Patience {
 public:
  Patience(const Clock& clock, Milliseconds time) : clock_(clock), until_(clock.now() + time) {}
  bool over() const { return clock_.now() >= until_; }
  Deadline deadline() const { return {clock_, until_}; }  // the same, for sockets
  Milliseconds left() const;                              // 0: it is over
  void pause();

 private:
  const Clock& clock_;
  TimePoint until_;
  int spins_ = 0;
};

// Memory for messages of our own. The comms on which it is registered own it as well and keep it until they
// are over, so it may be destroyed before or after them, and whatever the fabric still does with it.
class Staging {
 public:
  static Result<Staging> create(size_t bytes);
  // An error: the fabric refuses. The handle is valid as long as the comm.
  Result<core::MemoryHandle*> registerOn(core::Comm& comm);
  std::byte* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

 private:
  std::shared_ptr<std::byte[]> bytes_;
  size_t size_ = 0;
};

class Pipe {
 public:
  // The state of the other end, as known here. A state never goes back, and enter() alone changes it, so a
  // question gets the same answer however often it is asked.
  enum class State : uint8_t {
    open,
    left,     // the other end said goodbye: nothing more comes
    alarmed,  // the other end said that the group is broken: alarm() has its words
    broken,   // the connection failed: errorOf(receiving()) says why
  };

  // Either comm may be null and come later by join(). `name` is the name of the other end, for errors.
  static Result<std::unique_ptr<Pipe>> create(std::unique_ptr<core::SendComm> send,
                                              std::unique_ptr<core::RecvComm> receive, std::string name,
                                              const Clock& clock);

  // Waits until nothing of the connection is under way. A pipe that is destroyed without it waits for
  // nothing: its comms go to their engine with the memory of its messages.
  void close();
  // Memory on which the fabric may work for as long as the comms are not over.
  void keep(const std::shared_ptr<const void>& memory) const;

  // Makes one pipe of a pipe that only sends and a pipe that only receives.
  static std::unique_ptr<Pipe> join(std::unique_ptr<Pipe> sends, std::unique_ptr<Pipe> receives);

  core::SendComm& sending() const { return *send_; }
  core::RecvComm& receiving() const { return *receive_; }
  const std::string& name() const { return name_; }
  const Clock& clock() const { return *clock_; }

  // Control messages, at most kControlBytes. Each direction has one message under way at a time; a message
  // that is told meanwhile waits in line. A message whose patience ends stays in line as well, and leaves
  // when it can.
  // hear() must not be mixed with look(), since both take the next message.
  Status tell(const Bytes& message, Patience& patience);
  Result<Bytes> hear(Patience& patience);
  // The same without waiting. Without eager messages, a message leaves only when its receive is posted, so
  // two ends that tell each other something look at both in turn.
  void put(const Bytes& message) { unsaid_.push_back(message); }
  Result<bool> sent();                   // true: all that was put has left
  Result<std::optional<Bytes>> heard();  // the next message, if it is here

  // Posts the receive for the next message if that is possible now. A group calls it as soon as it has its
  // connections, so that a goodbye is never missed that arrives before the connection ends.
  void listen() {
    if (state_ == State::open && !post()) enter(State::broken);
  }

  // The one look at the other end: sends the messages that wait to leave, and takes a control message that
  // has come. A message outside of hear() is an alarm or a goodbye.
  State look();
  State state() const { return state_; }
  const Alarm& alarm() const { return alarm_; }  // in state alarmed
  bool saidGoodbye() const { return state_ == State::left; }

  // Tells the other end an alarm or a goodbye without waiting. The message leaves at once where that is
  // possible, else with later looks.
  void raiseAlarm(const Bytes& alarm);
  void repeatAlarm();
  bool isSaying() const { return !unsaid_.empty(); }  // some of it has not left

  // The error of a comm that broke, with the name of the other end.
  Error errorOf(const core::Comm& comm) const;

 private:
  // Ok without hearing_: not now. An error: the receiving comm has failed.
  Status post();
  Status push();
  void enter(State next);
  // Reads an alarm or a goodbye.
  void take(std::span<const std::byte> message);

  std::unique_ptr<core::SendComm> send_;
  std::unique_ptr<core::RecvComm> receive_;
  std::string name_;
  const Clock* clock_ = nullptr;
  Staging out_, in_;
  core::MemoryHandle* outMemory_ = nullptr;
  core::MemoryHandle* inMemory_ = nullptr;
  core::Request* hearing_ = nullptr;  // the receive into in_, once it is posted
  std::deque<Bytes> unsaid_;          // messages that have not left yet, oldest first
  core::Request* saying_ = nullptr;   // the send of the oldest one out of out_, once it is under way
  State state_ = State::open;
  Alarm alarm_;
};

}  // namespace weft::coll
