// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/system/driver/end.h"

namespace weft::system {

namespace {

constexpr uint64_t kCommId = 0x5157;

}  // namespace

End::End(Run& run, Net& net, const netdriver::Place& place, netdriver::ChildProcess* peer,
         std::optional<int> merged)
    : run_(run), net_(net), peer_(peer) {
  bootstrap_ = run.need(netdriver::Bootstrap::create(place, run.settings().timeout));
  context_.emplace(run.need(Context::create(net, kCommId)));
  int devices = 0;
  run.success(net.devices(&devices), Call::devices);
  run.require(devices > 0, "the plugin offers no device");
  if (merged) {
    device_ = *merged;
  } else if (run.settings().merge) {
    device_ = run.need(netdriver::mergeDevices(net));
  }
  run.success(net.getProperties(device(), &properties_), Call::getProperties);
  run.usesCards(properties_.virtualMembers);
}

void End::sync() {
  run_.need(bootstrap_->barrier());
}

Comm finishConnect(Run& run, End& end, const Context& context, Handle* handle) {
  Net& net = context.net();
  void* raw = nullptr;
  Deadline deadline(run, "connect");
  while (true) {
    run.success(net.connect(context.raw(), end.device(), handle->data(), &raw), Call::connect);
    if (raw != nullptr) return Comm(net, netdriver::Side::send, raw);
    deadline.check();
  }
}

Comm finishAccept(Run& run, const Comm& listener) {
  Net& net = listener.net();
  void* raw = nullptr;
  Deadline deadline(run, "accept");
  while (true) {
    run.success(net.accept(listener.raw(), &raw), Call::accept);
    if (raw != nullptr) return Comm(net, netdriver::Side::recv, raw);
    deadline.check();
  }
}

Comm connectOneWay(Run& run, End& end) {
  return connectOneWay(run, end, end.context());
}

// NCCL lets no rank go on before all have connected, so neither side does here.
Comm connectOneWay(Run& run, End& end, Context& context) {
  netdriver::Listener listener;
  if (end.receives()) listener = run.need(netdriver::listen(context, end.device()));
  Handle handle = end.exchange(listener.handle);
  Comm comm = end.receives() ? finishAccept(run, listener.comm) : finishConnect(run, end, context, &handle);
  end.sync();
  return comm;
}

netdriver::Ends connectBothWays(Run& run, End& end) {
  netdriver::Listener listener = run.need(netdriver::listen(end.context(), end.device()));
  const Handle theirs = end.exchange(listener.handle);
  return run.need(netdriver::connectBoth(end.context(), end.device(), theirs, std::move(listener),
                                         run.settings().timeout));
}

}  // namespace weft::system
