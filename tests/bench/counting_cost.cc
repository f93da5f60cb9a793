// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstdio>
#include <memory>

#include "src/stats/comm_stats.h"
#include "src/stats/ticks.h"

// usage: counting-cost
//
// Processor time that counting takes of a message, both ends together: what a sender and a receiver do with
// their pens, in the order in which comms do it, and nothing else. The least of several rounds, so that other
// programs of the machine disturb little. message-cost tells what a whole message takes.
using namespace weft::stats;

namespace {

constexpr uint32_t kMessages = 1'000'000;
constexpr int kRounds = 15;
constexpr uint64_t kSlot = 512 << 10;  // room that NCCL posts for any message of a ring

struct Line {
  Line() : comm(std::make_unique<CommLine>()), pen(comm.get()) {}
  std::unique_ptr<CommLine> comm;
  CommStats pen;
};

// Not inlined, as they are in functions that do more.
[[gnu::noinline]] uint32_t post(CommStats& pen, uint32_t k, uint64_t bytes, Way way) {
  return pen.posted(0, k, bytes, way);
}
[[gnu::noinline]] void end(CommStats& pen, uint32_t number, uint64_t bytes, Way way) {
  pen.done(number, bytes, way);
}
[[gnu::noinline]] void leave(CommStats& pen, uint32_t k, uint64_t bytes) {
  pen.whole(0, k, bytes);
}

void eager(Line& sender, Line& receiver, uint32_t k) {
  const uint32_t receive = post(receiver.pen, k, kSlot, Way::none);
  leave(sender.pen, k, 8);
  end(receiver.pen, receive, 8, Way::eager);
}

void direct(Line& sender, Line& receiver, uint32_t k) {
  constexpr uint64_t kBytes = 64 << 10;
  const uint32_t receive = post(receiver.pen, k, kBytes, Way::none);
  const uint32_t send = post(sender.pen, k, kBytes, Way::direct);
  end(sender.pen, send, kBytes, Way::none);
  end(receiver.pen, receive, kBytes, Way::direct);
}

template <class Message>
double nanosecondsOf(const Message& message) {
  double least = 1e9;
  for (int round = 0; round < kRounds; round++) {
    Line sender, receiver;
    const uint64_t begin = weft::stats::nanosecondsOf(CLOCK_THREAD_CPUTIME_ID);
    for (uint32_t k = 0; k < kMessages; k++) message(sender, receiver, k);
    const uint64_t took = weft::stats::nanosecondsOf(CLOCK_THREAD_CPUTIME_ID) - begin;
    least = std::min(least, static_cast<double>(took) / kMessages);
  }
  return least;
}

}  // namespace

int main() {
  std::printf("counting, both ends of a message: %.1f ns of 8 B into a slot, %.1f ns of 64 KiB\n",
              nanosecondsOf(eager), nanosecondsOf(direct));
}
