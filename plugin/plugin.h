// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "nccl/types.h"
#include "plugin/objects.h"
#include "src/core/net.h"
#include "src/tuner/policy.h"

// The state of the process: found by the first init, kept until the library is unloaded. It owns everything
// NCCL holds a pointer to. Any thread; one lock, held across discovery in init and for look-ups otherwise,
// never while something is closed, and not taken by the data path.
//
// The object itself is constant-initialised and trivially destructible: threads of the application may still
// call while the process exits.
namespace weft::plugin {

// Which context a call is about: NCCL's pointer (v11 and later), or the process-wide one of a traffic class.
struct ContextChoice {
  bool perCommunicator = false;
  void* pointer = nullptr;
  int trafficClass = -1;
};

// A context found; `held` is null for the process-wide ones.
struct ContextFound {
  core::ContextRef context;
  const HeldContext* held = nullptr;
};

class Plugin {
 public:
  static Plugin& get();

  // init of v6 to v10, and of v11 and later; the latter gives the pointer that NCCL keeps.
  Status start(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
  Result<void*> openContext(uint64_t communicator, int trafficClass, ncclDebugLogger_t logger,
                            ncclProfilerCallback_t profiler);

  // Closes everything that belongs to it, comms first, then the context.
  Status closeContext(void* pointer);

  Result<ContextFound> find(const ContextChoice& choice);

  Result<int> deviceCount();
  Result<const core::Properties*> properties(int device);
  Result<const Config*> config();  // null where there is no fabric; lives as long as the library
  Result<int> makeVirtual(std::span<const int> members);

  // Stands aside where NCCL has not initialised our network, or found no device.
  tuner::Policy tunerPolicy();

  // Takes ownership; the pointer is what NCCL gets.
  void* keep(std::unique_ptr<Held> object);

  // The object behind a pointer of NCCL, for closing. An error when there is none of that kind.
  Result<std::unique_ptr<Held>> release(void* pointer, Kind kind);

  // At unload and at exit. Does nothing while anything is open, in a forked child, or when the lock is taken.
  void unload();

 private:
  struct Life;

  Life& life();  // made when it is not there yet; all with the lock held
  Result<Life*> started();
  void dropLoggerWhenUnused();

  std::mutex mutex_;
  Life* life_ = nullptr;  // owned; not a unique_ptr, see above
};

}  // namespace weft::plugin
