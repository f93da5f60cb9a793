// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "nccl/types.h"
#include "plugin/objects.h"
#include "src/core/lock_order.h"
#include "src/core/net.h"
#include "src/tuner/policy.h"

// The state of the process: found by the first init, kept until the library is unloaded. It owns every object
// that NCCL holds a pointer to. Any thread. A single lock is held across discovery in the first init, which
// all calls need, and before which NCCL has no object whose call could wait for it; otherwise for look-ups
// alone. It is not held while an object or the fabric closes, and the data path does not take it.
//
// The object itself is constant-initialised and trivially destructible, as threads of the application may
// still call while the process exits.
namespace weft::plugin {

// The context of a call: NCCL's pointer (v11 and later), or the process-wide one of a traffic class.
struct ContextChoice {
  bool perCommunicator = false;
  void* pointer = nullptr;
  int trafficClass = -1;
};

// A context that was found; `held` is null for a process-wide one.
struct ContextFound {
  core::ContextRef context;
  const HeldContext* held = nullptr;
};

class Plugin {
 public:
  static Plugin& get();

  // init of v6 to v10, and init of v11 and later; the latter returns the pointer that NCCL keeps.
  Status start(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
  Result<void*> openContext(uint64_t communicator, int trafficClass, ncclDebugLogger_t logger,
                            ncclProfilerCallback_t profiler);

  // Closes everything that belongs to the context, comms first, then the context.
  Status closeContext(void* pointer);

  // An error: init was not called, the pointer is not a context's, or there is no device.
  Result<ContextFound> find(const ContextChoice& choice);

  Result<int> deviceCount();
  Result<const core::Properties*> properties(int device);
  Result<const Config*> config();  // null where there is no fabric; lives as long as the library
  Result<int> makeVirtual(std::span<const int> members);

  // Without advice where NCCL has not initialised our network, or where no device was found.
  tuner::Policy tunerPolicy();

  // Takes ownership. NCCL gets the returned pointer.
  void* keep(std::unique_ptr<Held> object);

  // Gives up the object behind a pointer of NCCL's, for closing. An error when there is none of that kind.
  Result<std::unique_ptr<Held>> release(void* pointer, Kind kind);

  // At unload and at exit. Does nothing while an object is open, in a forked child, or when the lock is
  // taken.
  void unload();
  bool isEmpty() const { return !life_; }  // at unload: nothing is left of it

 private:
  struct Life;
  class Logs;

  // Made at the first use. The lock is held, as for the next two.
  Life& life();
  Result<Life*> started();
  void useNewestLogger();

  core::OrderedMutex mutex_{core::LockRank::plugin};
  Life* life_ = nullptr;  // owned; no unique_ptr, see above
};

}  // namespace weft::plugin
