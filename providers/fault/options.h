// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/transport.h"

// The faults to make, and when. A rule names one fault, the operations it looks at and which of them it hits.
// Values; a test builds them by hand, WEFT_PROVIDER by text:
// "fault(seed=7,fault=drop,op=writeNotify,nth=5):loop". Every `fault=` starts a new rule; the keys after it
// belong to it.
namespace weft::fault {

enum class FaultKind : uint8_t {
  // Posted works (op write, writeNotify, read or any).
  drop,         // reports success, is never forwarded
  duplicate,    // forwarded twice; with polls > 0 the second one that much later, from a copy
  delay,        // forwarded `polls` polls later
  reorder,      // forwarded after `window` later works of its lane, or `polls` polls
  hold,         // forwarded once the peer's Queue polled (in process), else as delay
  early,        // completes at once, forwarded `polls` polls later from a copy; lowers the Delivery announced
  refuse,       // post takes nothing, `times` times
  error,        // completes with an error and is not forwarded; the lane lives on
  errorLanded,  // forwarded, and completes with an error all the same
  kill,         // collects `window` works (or waits `polls` polls), then all fail, `broken` is reported and
                // nothing lands any more
  killLate,     // as kill, but what failed lands `polls` polls later unless retired before
  killSilent,   // from here on works of the lane vanish without any completion until it is retired
  corrupt,  // forwarded from a copy in which one bit is flipped: of the last byte, or of one in the second
            // half where there are more than 4 KiB

  // Calls.
  discover,  // an error
  noDevice,  // an empty list
  open,      // an error; so are the next three
  registerMemory,
  openQueue,
  openEndpoint,
  connect,         // returns an error
  connectRefused,  // the `connected` completion has ok == false
  connectNever,    // no completion
};

// The operations that a rule counts. drop, delay, duplicate work on `notified` too, drop, delay, error on
// `sent`, and the three kills on `poll` (they take every lane of the Queue, also an idle one). Calls have
// their own.
enum class FaultOp : uint8_t { any, write, writeNotify, read, notified, sent, poll, call };

struct FaultRule {
  FaultKind kind = FaultKind::drop;
  FaultOp op = FaultOp::any;      // any: any posted work
  uint64_t nth = 1;               // the first operation hit, from 1
  uint64_t count = 1;             // how many in a row from there; 0: all
  double probability = 0;         // above 0: instead of nth and count
  int rail = -1;                  // index in discover's list; -1: all
  std::string device;             // name; empty: all
  int lane = -1;                  // n-th Endpoint opened on the Transport, from 0; -1: all
  size_t minBytes = 0;            // only works of at least this size
  std::optional<uint32_t> polls;  // see pollsOf
  uint32_t times = 1;
  uint32_t window = 1;

  // `polls`, or what suits the fault.
  uint32_t pollsOf() const;
};

class FaultControl;

struct FaultOptions {
  uint64_t seed = 1;
  std::optional<Delivery> delivery;  // announce this instead (a weaker one only)
  std::vector<FaultRule> rules;
  std::shared_ptr<FaultControl> control;  // made by the Transport when null
};

const char* faultName(FaultKind kind);
const char* opName(FaultOp op);

// True where the fault can hit these operations at all.
bool fits(FaultKind kind, FaultOp op);

// An error names the bad key or value and what is allowed.
Result<FaultOptions> parseOptions(const std::string& text);

}  // namespace weft::fault
