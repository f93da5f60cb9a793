// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/kernels/block.h"

#include <immintrin.h>
#include <sched.h>
#include <time.h>

namespace softgpu {

namespace {

constexpr unsigned kSpins = 20;    // a step that the other side is about to make
constexpr unsigned kYields = 200;  // then other threads of a busy machine run
constexpr long kRest = 50000;      // ns; then nothing will come for a while

}  // namespace

Block::Block(const Layout& layout, int version, char* comm, int channel)
    : layout_(layout),
      version_(version),
      comm_(comm),
      channel_(comm + layout.channels + channel * layout.channelSize),
      channelId_(channel),
      abortFlag_(viewAs<uint32_t>(field<void*>(comm, layout.abortFlag))) {}

char* Block::connection(int peer, bool receive, int index) const {
  char** const peers = viewAs<char*>(field<void*>(channel_, 0));
  // Two sending connections, then two receiving ones.
  return viewAs<char>(peers[peer]) + ((receive ? 2 : 0) + index) * layout_.connectionSize;
}

const int* Block::userRanks() const {
  return viewAs<int>(field<void*>(channel_, layout_.ring + layout_.ringUserRanks));
}

bool Block::aborted() {
  if (aborted_.load(std::memory_order_relaxed)) return true;
  if (abortFlag_ == nullptr || readShared(abortFlag_) == 0) return false;
  aborted_ = true;
  return true;
}

void Block::pause(unsigned turn) {
  if (turn < kSpins) {
    _mm_pause();
  } else if (turn < kYields) {
    sched_yield();
  } else {
    const timespec rest{0, kRest};
    nanosleep(&rest, nullptr);
  }
}

}  // namespace softgpu
