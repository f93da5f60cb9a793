// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/closing.h"

#include "src/base/log.h"
#include "src/base/process.h"

// The thread that closes a lost backend.
namespace weft::coll {

void Closing::take(std::unique_ptr<Backend> lost, const Clock& clock) {
  over_.store(false, std::memory_order_release);
  // std::function copies its target, hence the shared pointer. The thread's copy is the last one, so the
  // backend ends there.
  auto held = std::make_shared<std::unique_ptr<Backend>>(std::move(lost));
  const auto close = [this, held, &clock] {
    (*held)->close(clock);
    held->reset();
    over_.store(true, std::memory_order_release);
  };
  auto thread = startThread("weft-coll-close", close);
  if (thread) {
    thread_ = thread.take();
    return;
  }
  WEFT_LOG(info, "what is lost is closed by the thread that found it so: %s",
           thread.error().message().c_str());
  close();
}

}  // namespace weft::coll
