// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <memory>

#include "src/control/contract.h"

// How processes find, authenticate and watch each other: a control thread ("weft-control"), and a TCP link
// for each pair of processes. Any thread may call everything here, and nothing blocks but the destructor;
// handlers run on the control thread or within runInline().
namespace weft::control {

class Hub {
 public:
  // Binds the listening sockets on all interfaces, publishes the addresses that the settings allow, and
  // starts the control thread. Errors name the setting or the limit.
  static Result<std::shared_ptr<Hub>> create(HubOptions options);

  // Says goodbye to every peer, joins the thread, closes every descriptor. Returns within a second. It must
  // not run on the control thread.
  virtual ~Hub() = default;

  // A new listener with a secret of its own. Destroying it closes it.
  virtual Result<std::unique_ptr<Listener>> listen() = 0;
  // Asks the listener of the handle. The call may fail at once, which its state tells.
  virtual std::unique_ptr<Call> call(const Handle& handle, Bytes body) = 0;
  // The answer to a request that was taken. Without effect where the listener was closed or the peer has
  // died.
  virtual void reply(const Request& request, Bytes body) = 0;
  virtual void refuse(const Request& request, const Error& why) = 0;

  // Does the control thread's work at once, unless the control thread is doing it: for a thread that waits
  // for an answer and does not sleep. Never waits. Must not be called from within a handler.
  virtual void runInline() = 0;

  // Makes the control thread call Handler::onTick soon.
  virtual void wake() = 0;

  // For tests alone. `work` runs on the control thread, and is dropped while the hub is closing.
  virtual void post(std::function<void()> work) = 0;
  virtual bool onControlThread() const = 0;
  virtual const Incarnation& incarnation() const = 0;
};

}  // namespace weft::control
