// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/bench/seam_end.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "providers/registry.h"

namespace weft::bench {

SeamEnd::SeamEnd(const Shape& shape, const Companion& companion) : End(shape) {
  const Config config = must(readConfigFromEnvironment());
  Choice choice = must(chooseTransport(config));
  transport_ = std::move(choice.transport);
  device_ = must(transport_->open(choice.devices.front()));
  source_ = must(netdriver::HostBuffer::create(areasFor(outgoing()) * kAreaBytes));
  sink_ = must(netdriver::HostBuffer::create(areasFor(incoming()) * kAreaBytes));
  std::memset(source_.data(), 1, source_.size());
  std::memset(sink_.data(), 2, sink_.size());
  sourceMemory_ = must(device_->registerMemory({.address = source_.data(), .length = source_.size()}));
  sinkMemory_ = must(device_->registerMemory({.address = sink_.data(), .length = sink_.size()}));
  queue_ = must(device_->openQueue({}));
  openLanes(companion);
}

SeamEnd::~SeamEnd() {
  channels_.clear();  // lanes go before the queue they complete to
}

void SeamEnd::openLanes(const Companion& companion) {
  channels_.resize(std::max(outgoing(), incoming()));
  companion.put(sinkMemory_->blob());
  for (Channel& channel : channels_) {
    channel.lane = must(queue_->openEndpoint());
    companion.put(channel.lane->address());
  }
  const Bytes blob = companion.get();
  for (Channel& channel : channels_) {
    must(channel.lane->connect(companion.get()));
    channel.target = must(channel.lane->import(blob));
  }
  companion.put(blob);  // whatever it is: ours are connected
  (void)companion.get();
  for (Channel& channel : channels_) channel.lane->peerConnected();
  while (connected_ < channels_.size()) poll();
}

bool SeamEnd::send(size_t index, size_t bytes) {
  const uint64_t number = out_[index].started;
  const size_t place = areaOf(index) + placeOf(number, bytes);
  Work work;
  work.op = Opcode::writeNotify;
  work.imm = static_cast<uint32_t>(index);
  work.local = source_.data() + place;
  work.length = bytes;
  work.memory = sourceMemory_.get();
  work.remote = channels_[index].target;
  work.remoteOffset = place;
  work.context = index;
  if (channels_[index].lane->post({&work, 1}) == 0) return false;
  out_[index].started++;
  return true;
}

void SeamEnd::poll() {
  std::array<Completion, 32> found;
  const size_t count = queue_->poll(found);
  for (const Completion& completion : std::span(found).first(count)) {
    if (!completion.ok) die(queue_->explain(completion));
    if (completion.kind == CompletionKind::connected) connected_++;
    if (completion.kind == CompletionKind::notified) in_[completion.imm].finished++;
    if (completion.kind == CompletionKind::sent) out_[completion.context].finished++;
  }
}

}  // namespace weft::bench
