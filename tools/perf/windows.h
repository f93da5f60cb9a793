// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <memory>

#include "tools/netdriver/rma_comm.h"
#include "tools/perf/connector.h"

// The memory of a communicator into which its ranks reach: inputs, outputs, and a word for the signals of
// each channel. Opened and closed by the thread that connects; used by the one that drives.
namespace weft::perf {

struct WindowsRequest {
  netdriver::Bootstrap* bootstrap = nullptr;
  netdriver::RmaTable* table = nullptr;  // null: the plugin has none
  uint64_t commId = 0;
  int device = 0;
  int channels = 1;
  std::span<std::byte> input;
  std::span<std::byte> output;
  OnThread onThread;
};

class Windows {
 public:
  // All ranks at the same time.
  static Result<std::shared_ptr<Windows>> open(const WindowsRequest& request);

  netdriver::RmaComm& comm() const { return *comm_; }
  void* input() const { return input_; }  // handles
  void* output() const { return output_; }
  void* signals() const { return signals_; }
  uint64_t inputOffset(const std::byte* at) const {
    return static_cast<uint64_t>(at - request_.input.data());
  }
  uint64_t outputOffset(const std::byte* at) const {
    return static_cast<uint64_t>(at - request_.output.data());
  }
  // A channel's own word on this rank, and where it is in the window of signals.
  uint64_t signal(int channel) const {
    auto* word = reinterpret_cast<uint64_t*>(words_.data() + signalOffset(channel));
    return std::atomic_ref<uint64_t>(*word).load(std::memory_order_acquire);
  }
  static uint64_t signalOffset(int channel) { return static_cast<uint64_t>(channel) * sizeof(uint64_t); }

 private:
  // Connects the ranks, and registers all.
  Status connect(const netdriver::RmaComm::Listening& listening, std::span<netdriver::Handle> handles);

  WindowsRequest request_;
  netdriver::HostBuffer words_;
  std::unique_ptr<netdriver::RmaComm> comm_;  // goes before its memory
  void* input_ = nullptr;
  void* output_ = nullptr;
  void* signals_ = nullptr;
};

}  // namespace weft::perf
