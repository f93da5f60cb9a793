// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "src/coll/pipe.h"
#include "weft/collective.h"

// A backend reduces for a group. Three exist: the ranks among themselves (peers.h), a daemon (tree.h), and
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
  static constexpr size_t kOperations = kOperationsAtOnce;

  enum class Begun : uint8_t {
    begun,
    notNow,  // nothing has happened; the caller may try again
    failed,
  };
  enum class Step : uint8_t { going, done, failed };

  virtual ~Backend() = default;

  virtual Result<std::unique_ptr<GroupMemory>> registerMemory(const MemoryDesc& desc) = 0;
  // Blocks until the fabric lets go of the memory.
  virtual void deregisterMemory(GroupMemory& memory) = 0;

  // Takes an operation that the ring has checked. It copies the operation, not the buffers: they belong to
  // the backend until advance() says `done`.
  virtual Begun begin(uint64_t turn, const Operation& operation) = 0;
  // Moves the operation on, and those operations before it that it may wait for. After `done` it is not
  // called again for the turn.
  virtual Step advance(uint64_t turn) = 0;
  // The reason, after a step that failed. The ring listens to the others first, as a reason told by another
  // rank is better.
  virtual std::string failure() = 0;

  // A null request with ok: no flush is needed, the data is visible as it is.
  virtual core::Posted flush(const void*, size_t, GroupMemory&) { return {true, nullptr}; }
  virtual std::string flushFailure() { return {}; }

  // What the control links have brought of the other members: the heaviest of their states, and its reason.
  struct Heard {
    Pipe::State state = Pipe::State::open;
    std::string why;
  };
  virtual Heard hear() = 0;
  // The group is broken. Tells every other member why; nothing moves any more, and advance() only tells of
  // operations that are done already.
  virtual void fail(const std::string& why) = 0;
  // True: an operation that waits for a rank which left never fails, so the ring has to notice it.
  virtual bool needsEveryone() const { return false; }
  virtual uint64_t bytesSent() const = 0;  // payload, without heads and control messages

  // The end: stop() ends what works on memory without a connection; then the ring deregisters all memory; the
  // last call waits until nothing of the connections is under way. A backend that is destroyed without it
  // waits for nothing; its connections go to their engine, and work on registered memory until then.
  virtual void stop() {}
  virtual void disconnect() = 0;
};

}  // namespace weft::coll
