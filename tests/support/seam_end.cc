// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/support/seam_end.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "src/base/random.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"

namespace weft::test {

namespace {

template <class T>
T valueOf(Result<T> result) {
  if (!result) FAIL(result.error().message());
  return result.take();
}

void open(SeamEnd& end, QueueDepths depths) {
  end.queue = valueOf(end.device->openQueue(depths));
  end.lane = valueOf(end.queue->openEndpoint());
  end.memory = valueOf(end.device->registerMemory({.address = end.bytes.data(), .length = end.bytes.size()}));
}

}  // namespace

SeamEnd::SeamEnd(Transport& transport, size_t size, QueueDepths depths, size_t rail) : bytes(size) {
  const auto infos = valueOf(transport.discover());
  REQUIRE(infos.size() > rail);
  device = valueOf(transport.open(infos[rail]));
  open(*this, depths);
}

SeamEnd::SeamEnd(const SeamEnd& other, size_t size, QueueDepths depths) : bytes(size), device(other.device) {
  open(*this, depths);
}

void SeamEnd::connectTo(const SeamEnd& peer) {
  const Status started = lane->connect(peer.lane->address());
  if (!started) FAIL(started.error().message());
  importFrom(peer);
}

void SeamEnd::importFrom(const SeamEnd& peer) {
  remote = valueOf(lane->import(peer.memory->blob()));
}

void SeamEnd::poll() {
  Completion found[16];
  const size_t n = queue->poll(found);
  for (size_t i = 0; i < n; i++) {
    if (!found[i].ok) words.push_back(queue->explain(found[i]));
    seen.push_back(found[i]);
  }
}

Work SeamEnd::work(Opcode op, size_t from, size_t to, size_t length, uint64_t context) {
  Work made;
  made.op = op;
  made.local = bytes.data() + from;
  made.length = length;
  made.memory = memory.get();
  made.remote = remote;
  made.remoteOffset = to;
  made.context = context;
  return made;
}

size_t SeamEnd::count(CompletionKind kind) const {
  return count(kind, true) + count(kind, false);
}

size_t SeamEnd::count(CompletionKind kind, bool ok) const {
  return static_cast<size_t>(std::count_if(
      seen.begin(), seen.end(), [&](const Completion& c) { return c.kind == kind && c.ok == ok; }));
}

const Completion* SeamEnd::first(CompletionKind kind) const {
  for (const Completion& completion : seen)
    if (completion.kind == kind) return &completion;
  return nullptr;
}

void SeamEnd::fill(uint64_t seed) {
  SeededRandom random(seed);
  for (size_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t next = random.next();
    std::memcpy(bytes.data() + at, &next, std::min<size_t>(8, bytes.size() - at));
  }
}

bool SeamEnd::holds(size_t at, const SeamEnd& from, size_t fromAt, size_t length) const {
  return std::memcmp(bytes.data() + at, from.bytes.data() + fromAt, length) == 0;
}

void joinEnds(SeamEnd& a, SeamEnd& b) {
  a.connectTo(b);
  b.connectTo(a);
  REQUIRE(pumpUntil({&a, &b}, [&] {
    return a.count(CompletionKind::connected, true) == 1 && b.count(CompletionKind::connected, true) == 1;
  }));
}

void pump(std::initializer_list<SeamEnd*> ends, int times) {
  for (int i = 0; i < times; i++)
    for (SeamEnd* end : ends) end->poll();
}

bool pumpUntil(std::initializer_list<SeamEnd*> ends, const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10) * patience();
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    pump(ends, 1);
  }
  return true;
}

}  // namespace weft::test
