// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/rma/teams.h"

#include <chrono>
#include <cstring>

#include "tests/support/catch.h"
#include "tests/support/patience.h"

namespace weft::test {

Teams::Teams(int count, Config config, const Ranks::MakeTransport& makeTransport)
    : ranks_(count, std::move(config), makeTransport) {
  std::vector<std::string> failures(static_cast<size_t>(count));
  teams_.resize(static_cast<size_t>(count));
  ranks_.each([&](int rank) {
    auto team = rma::Team::open(ranks_.meshOptions(rank));
    if (team)
      teams_[static_cast<size_t>(rank)] = team.take();
    else
      failures[static_cast<size_t>(rank)] = team.error().message();
  });
  for (const std::string& failure : failures) REQUIRE(failure == "");
}

Teams::~Teams() {
  ranks_.each([&](int rank) { drop(rank); });
}

size_t Teams::addWindow(size_t bytes) {
  windows_.emplace_back(teams_.size());
  std::vector<std::string> failures(teams_.size());
  ranks_.each([&](int rank) {
    Memory& memory = windows_.back()[static_cast<size_t>(rank)];
    memory.bytes.resize(bytes);
    MemoryDesc desc;
    desc.address = memory.bytes.data();
    desc.length = bytes;
    auto made = team(rank).registerMemory(desc, false);
    if (made)
      memory.handle = *made;
    else
      failures[static_cast<size_t>(rank)] = made.error().message();
  });
  for (const std::string& failure : failures) REQUIRE(failure == "");
  return windows_.size() - 1;
}

uint64_t Teams::word(size_t index, int rank, size_t offset) {
  uint64_t value = 0;
  std::memcpy(&value, bytes(index, rank).data() + offset, sizeof value);
  return value;
}

bool Teams::until(const std::function<bool()>& reached) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
  while (!reached()) {
    for (const auto& one : teams_)
      if (one) (void)one->progress();
    if (std::chrono::steady_clock::now() > limit) return false;
  }
  return true;
}

void Teams::finish(int rank, rma::Request* request) {
  bool done = false;
  std::string failure;
  REQUIRE(until([&] {
    const Status tested = team(rank).test(request, &done);
    if (!tested) failure = tested.error().message();
    return done || !tested;
  }));
  REQUIRE(failure == "");
}

rma::Put Teams::put(int from, int to, size_t window, uint64_t offset, uint64_t bytes) {
  rma::Put put;
  put.rank = static_cast<uint32_t>(to);
  put.bytes = bytes;
  put.source = put.target = this->window(window, from);
  put.sourceOffset = put.targetOffset = offset;
  return put;
}

rma::Request* begun(Result<rma::Request*> result) {
  if (!result) FAIL(result.error().message());
  return *result;
}

rma::Put withSignal(rma::Put put, rma::Window* window, uint64_t offset, uint64_t addend) {
  put.signals = true;
  put.signal = window;
  put.signalOffset = offset;
  put.addend = addend;
  return put;
}

}  // namespace weft::test
