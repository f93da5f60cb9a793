// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <optional>

#include "tests/system/driver/run.h"
#include "tools/netdriver/bootstrap.h"
#include "tools/netdriver/child_process.h"

// One of the two sides of a case: both run the same function, side 0 mostly receives and side 1 mostly sends.
// They are two threads with a context each, or two processes; a connection of the test's own between them
// carries handles and barriers. One thread, and threads it starts for other comms.
namespace weft::system {

using netdriver::Comm;
using netdriver::Context;
using netdriver::Handle;
using netdriver::Registration;

class End {
 public:
  // `merged`: the device to use, where this process has merged its devices already.
  End(Run& run, Net& net, const netdriver::Place& place, netdriver::ChildProcess* peer,
      std::optional<int> merged = {});

  int side() const { return bootstrap_->rank(); }
  bool receives() const { return side() == 0; }
  Net& net() const { return net_; }
  Context& context() { return *context_; }
  int device() const { return device_; }
  const netdriver::Properties& properties() const { return properties_; }
  // Side 0 with a process as its peer; nullptr otherwise.
  netdriver::ChildProcess* peer() const { return peer_; }

  // Both sides are here.
  void sync();
  // What the other side passed.
  template <class T>
  T exchange(const T& mine) {
    return run_.need(bootstrap_->gatherValues(mine))[static_cast<size_t>(1 - side())];
  }

  // Gives the context back now.
  void closeContext() { context_.reset(); }

 private:
  Run& run_;
  Net& net_;
  netdriver::ChildProcess* peer_;
  std::unique_ptr<netdriver::Bootstrap> bootstrap_;
  std::optional<Context> context_;
  int device_ = 0;
  netdriver::Properties properties_;
};

// A connection from side 1 to side 0: the receiving comm there, the sending one here.
Comm connectOneWay(Run& run, End& end);
Comm connectOneWay(Run& run, End& end, Context& context);

// One connection in each direction, made at the same time by one thread a side.
netdriver::Ends connectBothWays(Run& run, End& end);

// Repeats one call until it yields a comm.
Comm finishConnect(Run& run, End& end, const Context& context, Handle* handle);
Comm finishAccept(Run& run, const Comm& listener);

}  // namespace weft::system
