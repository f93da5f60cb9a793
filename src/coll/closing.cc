// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/closing.h"

#include "src/base/log.h"
#include "src/base/process.h"

namespace weft::coll {

void Closing::take(std::unique_ptr<Group> lost) {
  over_.store(false, std::memory_order_release);
  // Shared, as what a thread runs can be copied; the thread has the only reference that is left.
  auto held = std::make_shared<std::unique_ptr<Group>>(std::move(lost));
  auto thread = startThread("weft-coll-close", [this, held] {
    held->reset();
    over_.store(true, std::memory_order_release);
  });
  if (thread) {
    thread_ = thread.take();
    return;
  }
  WEFT_LOG(info, "a lost group is closed by its own thread: %s", thread.error().message().c_str());
  held->reset();
  over_.store(true, std::memory_order_release);
}

}  // namespace weft::coll
