// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/bench/plugin_end.h"

#include <algorithm>
#include <cstring>

namespace weft::bench {

namespace {

using namespace netdriver;

constexpr int kDevice = 0;
constexpr int kTag = 7;
constexpr uint64_t kCommId = 1;
constexpr size_t kSlotBytes = size_t{512} << 10;

size_t slotFor(size_t bytes) {
  return std::max(bytes, kSlotBytes);
}

void must(ncclResult_t result, Call call) {
  if (result != ncclSuccess) [[unlikely]]
    die(std::string(callName(call)) + " returned " + resultName(result));
}

}  // namespace

PluginEnd::PluginEnd(const std::string& path, const Companion& companion)
    : End({0, 0}),
      companion_(companion),
      library_(bench::must(Library::open(path))),
      net_(library_->net()),
      source_(bench::must(HostBuffer::create(kAreas * kAreaBytes))),
      sink_(bench::must(HostBuffer::create(kAreas * kAreaBytes))) {
  beginCommunicator();
  int devices = 0;
  must(net_.devices(&devices), Call::devices);
  if (devices < 1) die(path + " has no device");
  std::memset(source_.data(), 1, source_.size());  // pages of their own, not the one of zeros
  std::memset(sink_.data(), 2, sink_.size());
}

PluginEnd::~PluginEnd() {
  receives_.clear();  // each waits for its peer's word, as NCCL's do
  sends_.clear();
}

void PluginEnd::beginCommunicator() {
  contexts_.push_back(bench::must(Context::create(net_, kCommId + contexts_.size())));
}

void PluginEnd::connect(const Shape& more, const Companion& companion) {
  std::vector<Opening> incoming(more.incoming), outgoing(more.outgoing);
  Bytes handles;
  for (Opening& opening : incoming) {
    opening.listener = bench::must(listen(contexts_.back(), kDevice));
    handles.insert(handles.end(), opening.listener.handle.begin(), opening.listener.handle.end());
  }
  companion.put(handles);
  const Bytes theirs = companion.getBusily();
  if (theirs.size() != outgoing.size() * sizeof(Handle))
    die("the other process opens other channels than we");
  for (size_t i = 0; i < outgoing.size(); i++)
    std::memcpy(outgoing[i].handle.data(), theirs.data() + i * sizeof(Handle), sizeof(Handle));
  for (bool left = true; left;) {
    left = false;
    for (Opening& opening : outgoing) left = stepOutgoing(&opening) || left;
    for (Opening& opening : incoming) left = stepIncoming(&opening) || left;
  }
  for (Opening& opening : outgoing) keep(opening.comm, Side::send);
  for (Opening& opening : incoming) keep(opening.comm, Side::recv);
}

// True while the comm is not there.
bool PluginEnd::stepOutgoing(Opening* opening) {
  if (opening->comm != nullptr) return false;
  must(net_.connect(contexts_.back().raw(), kDevice, opening->handle.data(), &opening->comm), Call::connect);
  return opening->comm == nullptr;
}

bool PluginEnd::stepIncoming(Opening* opening) {
  if (opening->comm != nullptr) return false;
  must(net_.accept(opening->listener.comm.raw(), &opening->comm), Call::accept);
  if (opening->comm != nullptr) must(opening->listener.comm.close(), Call::closeListen);
  return opening->comm == nullptr;
}

void PluginEnd::keep(void* comm, Side side) {
  const bool sends = side == Side::send;
  auto& channels = sends ? sends_ : receives_;
  const HostBuffer& memory = sends ? source_ : sink_;
  auto channel = std::make_unique<Channel>();
  channel->comm = Comm(net_, side, comm);
  const auto area = memory.span().subspan(areaOf(channels.size()), kAreaBytes);
  channel->memory = bench::must(Registration::create(channel->comm, area));
  channel->receive.tags[0] = kTag;
  channel->receive.mhandles[0] = channel->memory.mhandle();
  channels.push_back(std::move(channel));
  (sends ? out_ : in_).emplace_back();
}

bool PluginEnd::send(size_t index, size_t bytes) {
  Channel& channel = *sends_[index];
  Counters& out = out_[index];
  const SendArgs args{source_.data() + areaOf(index) + placeOf(out.started, bytes), bytes, kTag,
                      channel.memory.mhandle(), &channel.steps[out.started % kMostInFlight]};
  void*& request = channel.requests[out.started % kMostInFlight];
  request = nullptr;
  must(net_.isend(channel.comm.raw(), args, &request), Call::isend);
  if (request == nullptr) return false;
  out.started++;
  return true;
}

bool PluginEnd::postReceive(size_t index) {
  Channel& channel = *receives_[index];
  Counters& in = in_[index];
  const size_t bytes = slotFor(in.bytes);
  channel.receive.data[0] = sink_.data() + areaOf(index) + placeOf(in.started, bytes);
  channel.receive.sizes[0] = bytes;
  channel.receive.phandles[0] = &channel.steps[in.started % kMostInFlight];
  void*& request = channel.requests[in.started % kMostInFlight];
  request = nullptr;
  must(net_.irecv(channel.comm.raw(), channel.receive, &request), Call::irecv);
  if (request == nullptr) return false;
  in.started++;
  return true;
}

void PluginEnd::poll() {
  for (size_t i = 0; i < std::min(active_, receives_.size()); i++) {
    Counters& in = in_[i];
    while (in.started < in.expected && in.started - in.finished < window_)
      if (!postReceive(i)) break;
    testOldest(*receives_[i], &in);
  }
  for (size_t i = 0; i < std::min(active_, sends_.size()); i++) testOldest(*sends_[i], &out_[i]);
}

void PluginEnd::testOldest(Channel& channel, Counters* counters) {
  if (counters->finished == counters->started) return;
  int done = 0, size = 0;
  must(net_.test(channel.requests[counters->finished % kMostInFlight], &done, &size), Call::test);
  counters->finished += done != 0;
}

std::string PluginEnd::describe() const {
  Properties properties;
  must(net_.getProperties(kDevice, &properties), Call::getProperties);
  return std::string(net_.name()) + ", table v" + std::to_string(net_.abi()) + ", on " + properties.name;
}

}  // namespace weft::bench
