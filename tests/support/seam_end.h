// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "weft/transport.h"

// An end of a lane for tests of the seam: a device, a Queue, a lane, a registered buffer, and everything the
// Queue has reported so far. Two ends stand for two processes. Used by one thread.
namespace weft::test {

struct SeamEnd {
  SeamEnd(Transport& transport, size_t bytes, QueueDepths depths = {}, size_t rail = 0);
  // Shares `other`'s Device but nothing else.
  SeamEnd(const SeamEnd& other, size_t bytes, QueueDepths depths = {});

  void connectTo(const SeamEnd& peer);
  void importFrom(const SeamEnd& peer);
  void poll();
  Work work(Opcode op, size_t from, size_t to, size_t length, uint64_t context = 0);
  bool post(const Work& work) { return lane->post({&work, 1}) == 1; }

  size_t count(CompletionKind kind) const;
  size_t count(CompletionKind kind, bool ok) const;
  const Completion* first(CompletionKind kind) const;

  void fill(uint64_t seed);
  bool holds(size_t at, const SeamEnd& from, size_t fromAt, size_t length) const;

  std::vector<uint8_t> bytes;
  std::shared_ptr<Device> device;
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Endpoint> lane;
  std::unique_ptr<Memory> memory;
  RemoteMemory remote;
  std::vector<Completion> seen;
  std::vector<std::string> words;  // explain() of every failure in seen
};

// Connects both and waits until both say so.
void joinEnds(SeamEnd& a, SeamEnd& b);

// Polls every end until `done` holds; false when it does not within ten seconds (times patience()).
bool pumpUntil(std::initializer_list<SeamEnd*> ends, const std::function<bool()>& done);
void pump(std::initializer_list<SeamEnd*> ends, int times);

}  // namespace weft::test
