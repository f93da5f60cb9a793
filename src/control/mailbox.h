// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/fd.h"
#include "weft/result.h"

// The way of other threads to the control thread: a queue of closures and an eventfd (eventfd(2)). The hub
// shares it with every peer, call and listener that it handed out, so those stay safe to use after the hub
// has closed it. Any thread; only the control thread calls take().
namespace weft::control {

class Mailbox {
 public:
  using Work = std::function<void()>;

  static Result<std::shared_ptr<Mailbox>> create();
  explicit Mailbox(Fd event) : event_(std::move(event)) {}

  bool post(Work work);  // false: closed, or in a forked child; the work was dropped
  void signal();         // wakes the control thread without any work
  // All closures so far, in order; clears the signal.
  std::vector<Work> take();
  // Drops what waits and everything later.
  void close();
  int fd() const { return event_.get(); }  // valid until close()

 private:
  void signalLocked();

  std::mutex mutex_;
  Fd event_;
  bool closed_ = false;
  std::vector<Work> queue_;
};

}  // namespace weft::control
