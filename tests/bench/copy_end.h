// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <vector>

#include "src/base/fd.h"
#include "tests/bench/companion.h"
#include "tests/bench/end.h"
#include "tools/netdriver/comm.h"

// memcpy between two processes through shared memory, with a counter in each direction and nothing else: the
// baseline on one host.
namespace weft::bench {

enum class CopyStyle {
  once,   // straight into the receiver's buffer, which is shared memory
  twice,  // into a ring and out of it, pieces at a time, both processes at once
};

class CopyEnd final : public End {
 public:
  CopyEnd(CopyStyle style, const Shape& shape, const Companion& companion);

  bool send(size_t channel, size_t bytes) override;
  void poll() override;
  std::string describe() const override;

 private:
  static constexpr size_t kRing = 256 << 10;
  static constexpr size_t kPiece = 32 << 10;
  // Of one direction of one channel. Bytes of twice, messages of once.
  struct Lane {
    alignas(128) std::atomic<uint64_t> written;
    alignas(128) std::atomic<uint64_t> taken;
    alignas(128) std::byte ring[kRing];
  };
  struct Shared {
    Shared(size_t lanes, size_t sinkBytes);  // a new one
    Shared(pid_t pid, int fd, size_t lanes, size_t sinkBytes);
    Lane& lane(size_t i) const { return reinterpret_cast<Lane*>(at)[i]; }
    std::byte* sink() const { return at + sinkAt; }
    void map();
    Fd file;
    size_t sinkAt, bytes;
    std::byte* at = nullptr;
  };
  struct Progress {
    size_t bytes = 0, done = 0;
    uint64_t written = 0, taken = 0;
  };

  void pushOut(size_t channel);
  void pullIn(size_t channel);

  const CopyStyle style_;
  netdriver::HostBuffer source_, private_;
  std::unique_ptr<Shared> mine_, theirs_;  // where we receive, and where they do
  std::vector<Progress> sending_, receiving_;
};

}  // namespace weft::bench
