// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/soak/footprint.h"

#include <algorithm>
#include <chrono>
#include <malloc.h>
#include <thread>

#include "tests/support/sanitizer.h"
#include "tests/system/driver/process_state.h"

namespace weft::soak {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kSlack = 12 * kMiB;    // arenas of threads, ours and glibc's
constexpr uint64_t kFabricLeak = 20'000;  // of libfabric 1.17, for each endpoint pair that is closed
// Sockets of the lanes that stay up for the next connection: there are none at first where they have failed.
constexpr uint64_t kIdleLanes = 8;
constexpr uint64_t kFabricKeeps = 2000;  // the socket of one in so many connections, closed while it was made
// A connection that was given up while it was made is kept for twice WEFT_CONNECT_TIMEOUT: NCCL may ask for
// it again.
constexpr std::chrono::seconds kSettling{45};

std::string openDescriptors() {
  std::string text;
  for (const system::DescriptorState& open : system::descriptors())
    text += " " + std::to_string(open.fd) + " " + open.target;
  return text;
}

uint64_t grown(uint64_t before, uint64_t after) {
  return after - std::min(before, after);
}

}  // namespace

Footprint footprint() {
  const struct mallinfo2 heap = mallinfo2();
  return {system::descriptors().size(), system::threads().size(), system::residentBytes(),
          heap.uordblks + heap.hblkhd};
}

void checkFootprint(system::Run& run, const std::string& who, const Footprint& before, uint64_t connections) {
  Footprint now = footprint();
  const size_t mostDescriptors = before.descriptors + kIdleLanes + connections / kFabricKeeps;
  const auto settled = [&] { return now.descriptors <= mostDescriptors && now.threads <= before.threads; };
  for (const auto end = std::chrono::steady_clock::now() + kSettling;
       !settled() && std::chrono::steady_clock::now() < end; now = footprint())
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (now.descriptors > mostDescriptors)
    run.expect(false, who + ": descriptors grew from " + std::to_string(before.descriptors) + " to " +
                          std::to_string(now.descriptors) + ":" + openDescriptors());
  run.expect(now.threads <= before.threads, who + ": threads grew from " + std::to_string(before.threads) +
                                                " to " + std::to_string(now.threads));
  if (test::kSanitized) return;  // its own bookkeeping grows
  malloc_trim(0);
  now = footprint();
  const uint64_t allowed = kSlack + connections * kFabricLeak;
  for (const auto& [what, bytes] : {std::pair("resident memory", grown(before.resident, now.resident)),
                                    std::pair("the heap", grown(before.heap, now.heap))})
    run.expect(bytes <= allowed, who + ": " + what + " grew by " + std::to_string(bytes / 1024) +
                                     " KiB with " + std::to_string(connections) + " connections");
}

}  // namespace weft::soak
