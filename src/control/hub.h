// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <memory>

#include "src/control/contract.h"

// How processes find, authenticate and watch each other: one control thread ("weft-control") and one TCP link
// per pair of processes. Everything here may be called from any thread and never blocks; handlers run on the
// control thread or within runInline().
namespace weft::control {

class Hub {
 public:
  // Binds the listening sockets on the interfaces the settings allow and starts the control thread.
  static Result<std::shared_ptr<Hub>> create(HubOptions options);

  // Says goodbye to every peer, joins the thread, closes every descriptor. Returns within a second. Not to be
  // called on the control thread.
  virtual ~Hub() = default;

  virtual Result<std::unique_ptr<Listener>> listen() = 0;
  virtual std::unique_ptr<Call> call(const Handle& handle, Bytes body) = 0;
  virtual void reply(const Request& request, Bytes body) = 0;
  virtual void refuse(const Request& request, const Error& why) = 0;

  // Does at once what there is to do for the control thread, unless that is at it: for a thread that waits
  // for an answer and does not sleep. Never waits. Not from within a handler.
  virtual void runInline() = 0;

  // Makes the control thread call Handler::onTick soon.
  virtual void wake() = 0;

  // Called by tests alone. `work` runs on the control thread, and is dropped when the hub is closing.
  virtual void post(std::function<void()> work) = 0;
  virtual bool onControlThread() const = 0;
  virtual const Incarnation& incarnation() const = 0;
};

}  // namespace weft::control
