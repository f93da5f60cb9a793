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

// A connection to another member of a group: a sending and a receiving comm of the network below. Those comms
// see to rails, fail-over and registration. Used by a single thread at a time.
namespace weft::coll {

constexpr int kControlTag = 0;  // of control messages; operations have the tags from 1 on

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

// Memory for messages of our own, not set to anything. The comms on which it is registered own it as well and
// keep it until they are over, so it may be destroyed before or after them, and whatever the fabric still
// does with it.
class Staging {
 public:
  static Result<Staging> create(size_t bytes);  // an error of class resources: there is no memory
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
  // Either comm may be null and come later by join(). `name` is the name of the other end, for errors.
  static Result<std::unique_ptr<Pipe>> create(std::unique_ptr<core::SendComm> send,
                                              std::unique_ptr<core::RecvComm> receive, std::string name);

  // Waits until nothing of the connection is under way. A pipe that is destroyed without it waits for
  // nothing: its comms go to their engine with the memory of its messages.
  void close();

  // Makes one pipe of a pipe that only sends and a pipe that only receives.
  static std::unique_ptr<Pipe> join(std::unique_ptr<Pipe> sends, std::unique_ptr<Pipe> receives);

  core::SendComm& sending() const { return *send_; }
  core::RecvComm& receiving() const { return *receive_; }
  const std::string& name() const { return name_; }

  // Control messages while a group is formed, at most kControlBytes. Each direction has one message under way
  // at a time; a message that is told meanwhile waits in line. A message whose patience ends stays in line as
  // well, and leaves when it can.
  Status tell(const Bytes& message, Patience& patience);
  Result<Bytes> hear(Patience& patience);
  // The same without waiting. Without eager messages, a message leaves only when its receive is posted, so
  // two ends that tell each other something look at both in turn.
  void put(const Bytes& message) { unsaid_.push_back(message); }
  Result<bool> sent();                   // true: all that was put has left
  Result<std::optional<Bytes>> heard();  // the next message, if it is here

  // The state of the other end once the group is formed, by what the control link brought.
  enum class State : uint8_t {
    open,
    left,     // it closed the connection
    broken,   // the connection failed without a word from it: fault() says why
    alarmed,  // it said that the group is broken: alarm() has its words
  };
  State look() const;
  std::string alarm() const;
  std::string fault() const;
  // Tells the other end why the group is broken. Nothing moves on the connection any more.
  void fail(const std::string& why) const;

 private:
  // Ok without hearing_: not now. An error: the receiving comm has failed.
  Status post();
  Status push();
  Error errorOf(const core::Comm& comm) const;

  std::unique_ptr<core::SendComm> send_;
  std::unique_ptr<core::RecvComm> receive_;
  std::string name_;
  Staging out_, in_;
  core::MemoryHandle* outMemory_ = nullptr;
  core::MemoryHandle* inMemory_ = nullptr;
  core::Request* hearing_ = nullptr;  // the receive into in_, once it is posted
  std::deque<Bytes> unsaid_;          // messages that have not left yet, oldest first
  core::Request* saying_ = nullptr;   // the send of the oldest one out of out_, once it is under way
};

// The members of a group as one of them sees them: pipes by member, null for itself, and for those with which
// it has nothing to do. The pipes outlive it.
struct Members {
  std::vector<Pipe*> pipes;
  int self = 0;
  int count() const { return static_cast<int>(pipes.size()); }
  Pipe* pipe(int member) const { return pipes[static_cast<size_t>(member)]; }
};

}  // namespace weft::coll
