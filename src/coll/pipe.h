// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/net/sockets.h"
#include "src/coll/wire.h"
#include "src/core/net.h"

// A connection to one other rank, or to a daemon: a sending and a receiving comm of the network below, over
// which rails, fail-over and registration come by themselves. One thread at a time.
namespace weft::coll {

constexpr int kControlTag = 0;  // control messages; data has the tags from 1 on

// When waiting ends, and what to do meanwhile: first spin, then sleep.
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
  // Either comm may come later; `name` says who is at the other end.
  static Result<std::unique_ptr<Pipe>> create(std::unique_ptr<core::SendComm> send,
                                              std::unique_ptr<core::RecvComm> receive, std::string name);

  // One that sends and one that receives become one that does both.
  static Result<std::unique_ptr<Pipe>> join(std::unique_ptr<Pipe> sends, std::unique_ptr<Pipe> receives);

  core::SendComm& sending() const { return *send_; }
  core::RecvComm& receiving() const { return *receive_; }
  const std::string& name() const { return name_; }

  // Control messages, at most kControlBytes; one of each direction at a time.
  Status tell(const Bytes& message, Patience& patience);
  Result<Bytes> hear(Patience& patience);
  // Posts the receive for the next one: where two tell each other something, they first expect it. Without
  // eager messages none leaves before.
  Status expect(Patience& patience);

  // A control message that comes when nobody waits for one is an alarm. What it says, if one is here; looks
  // once, and repeats our own that has not left yet.
  std::optional<Alarm> alarm();
  bool isBroken() const { return broken_; }      // seen while it was looked for one
  bool saidGoodbye() const { return goodbye_; }  // an empty one: nothing more comes
  // Leaves at once, or by repeatAlarm. While one waits to leave, no other is raised.
  void raiseAlarm(const Bytes& alarm);
  void repeatAlarm();

  // The error of the comm that broke, with the name of who is there.
  Error errorOf(const core::Comm& comm) const;

 private:
  Status post();

  std::unique_ptr<core::SendComm> send_;
  std::unique_ptr<core::RecvComm> receive_;
  std::string name_;
  Staging out_, in_;  // before the comms go
  core::MemoryHandle* outMemory_ = nullptr;
  core::MemoryHandle* inMemory_ = nullptr;
  core::Request* hearing_ = nullptr;
  Bytes unsaid_;                     // an alarm that has not left yet
  core::Request* saying_ = nullptr;  // it is under way
  bool goodbye_ = false;
  bool broken_ = false;
};

}  // namespace weft::coll
