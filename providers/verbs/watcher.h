// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <thread>

#include "providers/verbs/library.h"
#include "src/base/fd.h"

// Reads a card's asynchronous events on a thread of its own (port down, device failed, a queue pair's error),
// and hands each on before it is acknowledged: until then the kernel keeps the object of the event. Each
// Device owns one.
namespace weft::verbs {

class Watcher {
 public:
  using Handler = std::function<void(const ibv_async_event&)>;

  Watcher() = default;
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // The context outlives the Watcher. `handler` runs on the Watcher's thread; the object of the event lives
  // during the call.
  Status start(const Library& library, ibv_context* context, Handler handler);

 private:
  void run();

  const Library* library_ = nullptr;
  ibv_context* context_ = nullptr;
  Handler handler_;
  Fd stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace weft::verbs
