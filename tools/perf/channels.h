// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>

#include "tools/perf/collective.h"

// The channels that collectives make of their connections, in the sizes NCCL gives them. Used by one thread.
namespace weft::perf {

// `stepsPerSlot` steps of the buffer carry one message: 2 in rings that reduce or gather, 1 elsewhere.
inline netdriver::ChannelShape bufferShape(const Wiring& wiring, size_t stepsPerSlot) {
  netdriver::ChannelShape shape;
  shape.slotBytes = wiring.bufferBytes / kSteps * stepsPerSlot;
  shape.slots = kSteps / stepsPerSlot;
  return shape;
}

// How many messages so many bytes are. Nothing to send is still one, as in NCCL.
inline size_t messagesOf(size_t bytes, size_t messageBytes) {
  return std::max<size_t>(1, (bytes + messageBytes - 1) / messageBytes);
}

inline Result<std::unique_ptr<netdriver::SendChannel>> sendTo(Wiring& wiring, int peer,
                                                              netdriver::ChannelShape shape) {
  shape.tag = wiring.rank;
  return netdriver::SendChannel::create(std::move(wiring.to[static_cast<size_t>(peer)]), shape);
}

inline Result<std::unique_ptr<netdriver::RecvChannel>> receiveFrom(Wiring& wiring, int peer,
                                                                   netdriver::ChannelShape shape) {
  shape.tag = peer;
  return netdriver::RecvChannel::create(std::move(wiring.from[static_cast<size_t>(peer)]), shape);
}

// A rank that is alone has nobody to talk to: its input is the result.
class CopyAlone final : public Collective {
 public:
  void start(const Work& work) override;
  Status progress(bool*) override { return {}; }
  bool done() const override { return true; }
  uint64_t messages() const override { return 0; }
};

}  // namespace weft::perf
