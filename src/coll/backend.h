// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "src/coll/bond.h"
#include "weft/collective.h"

// A backend reduces for a group. Three exist: the ranks among themselves (peers.h), daemons (tree.h), and
// switches (sharp.h). The ring (ring.h) owns a backend, checks and counts the operations, and hands each
// operation to it; a backend knows only how an operation moves.
// Threads: any thread registers and closes; everything else runs on the thread of the group's data calls.
// Memory: a backend sees only the GroupMemory that its own registerMemory returned.
namespace weft::coll {

class Backend {
 public:
  // The most operations under way at a time. The ring counts the operations that it has begun: that number is
  // an operation's turn, the same on every rank, and turn % kOperations is its place. A place is free again
  // once advance() said `done` of the operation in it.
  static constexpr size_t kOperations = 64;

  enum class Begun : uint8_t {
    begun,
    notNow,  // nothing has happened; the caller may try again
    failed,
  };
  enum class Step : uint8_t { going, done, failed };

  // The reason of a step that failed.
  struct Failure {
    std::string why;
    bool lost = false;  // the backend itself is lost: a daemon or the way to it; the ranks are there
  };

  virtual ~Backend() = default;

  // Errors name the cause. `remote`, `timeout`: the backend may be lost, which the ring decides.
  virtual Result<std::unique_ptr<GroupMemory>> registerMemory(const MemoryDesc& desc) = 0;
  // Blocks until the fabric lets go of the memory.
  virtual void deregisterMemory(GroupMemory& memory) = 0;
  // False: a daemon that this backend needs beside the ranks is known to be gone. Any thread.
  virtual bool isReachable() const { return true; }

  // Takes an operation that the ring has checked. It copies the operation, not the buffers: they belong to
  // the backend until advance() says `done`.
  virtual Begun begin(uint64_t turn, const Operation& operation) = 0;
  // Moves the operation on, and those operations before it that it may wait for. Says `done` once for each.
  virtual Step advance(uint64_t turn) = 0;
  // The reason, after a step that failed. The ring looks at the bond first, as a reason told by another rank
  // is better.
  virtual Failure failure() = 0;

  // The reason where isReachable() or a registration showed the loss, and no step.
  virtual Failure loss() const { return {"the backend is gone", true}; }

  // A null request with ok: no flush is needed, the data is visible as it is.
  virtual core::Posted flush(const void*, size_t, GroupMemory&) { return {true, nullptr}; }
  virtual Failure flushFailure() { return {}; }

  // The group is broken: nothing moves any more, and advance() only tells of operations that are done
  // already.
  virtual void halt() = 0;
  virtual Bond& bond() = 0;
  // True: an operation that waits for a rank which is gone never fails, so the ring has to watch the bond.
  virtual bool needsEveryone() const { return false; }
  virtual uint64_t bytesSent() const = 0;  // payload, without heads and control messages

  // Says goodbye to the other ends. Where the goodbye is a message, a broken group's alarm takes its place;
  // where it is the end of a connection, that ends in any case. Does not wait.
  virtual void part() = 0;
  // Called after part() and before disconnect(): lets the other ends of the connections end first, and ends
  // what works on memory without a connection. Waits a second at most. Memory is deregistered after it.
  virtual void close(const Clock& clock) = 0;
  // The last call: waits until nothing of the connections is under way. A backend that is destroyed without
  // it waits for nothing; its connections go to their engine, and work on registered memory until then.
  virtual void disconnect() {}
  // Memory that the connections keep until nothing of them is under way any more.
  virtual void keep(const std::shared_ptr<const void>& /*memory*/) {}
};

}  // namespace weft::coll
