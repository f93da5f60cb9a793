// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/nccl/cases.h"

// The queues by which kernels tell NCCL's proxy thread what to put, get and signal, filled from here as a
// kernel fills them: they are in pinned memory. Shapes are those of NCCL 2.30.7's device communicator
// (ncclDevComm, ncclGinProxyGpuCtx_t, ncclGinProxyGfd_t), which later versions still hand out to whoever asks
// for that version. One thread.
namespace nccltest {

constexpr int kKernelContexts = 4;
constexpr int kKernelSignals = 8;   // of each context
constexpr int kKernelCounters = 8;  // likewise

// A range of a window, as the proxy knows it.
struct KernelRange {
  Window window = nullptr;
  uint64_t offset = 0;
};

class KernelQueues {
 public:
  explicit KernelQueues(const Rank& rank);
  ~KernelQueues();
  KernelQueues(const KernelQueues&) = delete;
  KernelQueues& operator=(const KernelQueues&) = delete;

  // Signals are added to by one, or by a value. `counter` is one of this rank that says that the source may
  // be used again; 0: none.
  void put(int context, int peer, KernelRange from, KernelRange to, uint64_t bytes, int counter = 0);
  void putSignal(int context, int peer, KernelRange from, KernelRange to, uint64_t bytes, int signal,
                 int counter = 0);
  void putValue(int context, int peer, uint64_t value, KernelRange to);  // of 8 bytes
  void addSignal(int context, int peer, int signal, uint64_t value);
  void addWord(int context, int peer, KernelRange word, uint64_t value);  // a signal in a window
  void get(int context, int peer, KernelRange from, KernelRange to, uint64_t bytes);
  void flush(int context, int peer);

  // False: it was not so within 30 s.
  bool awaitSignal(int context, int signal, uint64_t value) const;
  bool awaitCounter(int context, int counter, uint64_t value) const;
  bool awaitTaken(int context, int peer) const;  // all that was asked for is done

 private:
  using Descriptor = std::array<uint64_t, 16>;
  // ncclGinProxyGpuCtx_t
  struct Context {
    int ranks;
    uint32_t queueSize;
    Descriptor* queues;  // by rank
    uint32_t *produced, *consumed;
    uint64_t *counters, *signals, *signalOffsets;
    uint32_t *lastIssuedGet, *lastVisibleGet;
  };
  static_assert(sizeof(Context) == 72);
  // ncclDevComm
  struct alignas(8) DeviceComm {
    std::array<char, 144> before;
    uint8_t connections;
    std::array<uint8_t, 4> types;
    std::array<void*, 4> handles;
    std::array<char, 320> behind;  // it has less
  };

  void move(int context, int peer, KernelRange from, KernelRange to, uint64_t bytes, uint64_t op,
            uint64_t completion);
  void post(int context, int peer, Descriptor descriptor);

  const Rank& rank_;
  DeviceComm comm_{};
  std::vector<Context> contexts_;
  std::vector<std::vector<uint32_t>> posted_;  // by context and rank
};

}  // namespace nccltest
