// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <mutex>

#include "nccl/types.h"
#include "src/tuner/tuner.h"

// The tuner as NCCL holds it: an entry for each communicator that has one, from init to destroy. The entries
// exist only while there are some, so that nothing is left when the library is unloaded. Any thread; a single
// lock, held while an entry is used. Constant-initialised and trivially destructible, as Plugin is.
namespace weft::plugin {

class TunerDesk {
 public:
  static TunerDesk& get();

  // Returns the pointer that NCCL keeps. Logs the decision through `logger`, unless it was logged last.
  void* open(tuner::Tuner tuner, ncclDebugLogger_t logger);
  void close(void* context);

  // Calls `use` with the tuner behind the pointer; not at all when there is none.
  template <class Use>
  void with(void* context, Use&& use) {
    const std::lock_guard lock(mutex_);
    if (const tuner::Tuner* found = find(context)) use(*found);
  }

 private:
  struct Entries;

  const tuner::Tuner* find(const void* context) const;

  std::mutex mutex_;
  Entries* entries_ = nullptr;  // owned; null when there are none
};

}  // namespace weft::plugin
