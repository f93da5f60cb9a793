// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "src/coll/bond.h"
#include "weft/collective.h"

// A backend reduces for a group: its ranks among themselves do (peers.h), daemons (tree.h) or switches
// (sharp.h). The ring (ring.h) owns one, checks and counts the operations, and hands each to it; a backend
// only knows how an operation moves.
//
// Threads: registering and closing from any thread, all else from the thread of the group's data calls.
// Memory is the backend's own, as registerMemory gave it.
namespace weft::coll {

class Backend {
 public:
  // Operations that are under way at a time. The ring counts those it has begun: that number is an
  // operation's turn, the same on every rank, and turn % kOperations is its place. A place is free again once
  // advance() said `done` of the operation in it.
  static constexpr size_t kOperations = 64;

  enum class Begun : uint8_t {
    begun,
    notNow,  // nothing happened; the caller may try again
    failed,
  };
  enum class Step : uint8_t { going, done, failed };

  // Why a step failed.
  struct Failure {
    std::string why;
    bool lost = false;  // the backend itself: a daemon or the way to it. The ranks are all there.
  };

  virtual ~Backend() = default;

  virtual Result<std::unique_ptr<GroupMemory>> registerMemory(const MemoryDesc& desc) = 0;
  virtual void deregisterMemory(GroupMemory& memory) = 0;
  // False: what this backend needs beside the ranks is known to be gone. Any thread.
  virtual bool isReachable() const { return true; }

  virtual Begun begin(uint64_t turn, const Operation& operation) = 0;
  // Moves the operation on, and those before it that it may wait for. Says `done` once.
  virtual Step advance(uint64_t turn) = 0;
  // After a step that failed; a look at the bond before it may make the reason better.
  virtual Failure failure() = 0;

  // Where it was found gone by other means than a step (isReachable).
  virtual Failure loss() const { return {"the backend is gone", true}; }

  // A null request with ok: the data is visible as it is.
  virtual core::Posted flush(const void*, size_t, GroupMemory&) { return {true, nullptr}; }
  virtual Failure flushFailure() { return {}; }

  // The group is broken: nothing moves any more, and advance() only tells what is done already.
  virtual void halt() = 0;
  virtual Bond& bond() = 0;
  // True: a rank that is gone shows by the bond alone, since an operation that waits for it never fails.
  virtual bool needsEveryone() const { return false; }
  virtual uint64_t bytesSent() const = 0;  // payload

  // Says goodbye, unless the group is broken. Does not wait.
  virtual void part() = 0;
  // After part(), before the end: lets the other ends of the connections end first. Waits, at most a second.
  virtual void close(const Clock& clock) = 0;
};

}  // namespace weft::coll
