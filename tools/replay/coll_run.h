// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "tools/netdriver/coll_net.h"
#include "tools/replay/coll_data.h"
#include "tools/replay/memory.h"
#include "tools/replay/times.h"

// Repeats what happened to one context, listener or group of collective offload: the part of a QueueRun that
// knows that table. As a QueueRun, one thread at a time.
namespace weft::replay {

struct RankState;  // rank_run.h

enum class Step : uint8_t { done, later };

class CollRun : private Registrar {
 public:
  CollRun(const Queue& plan, RankState& rank);
  ~CollRun() override { finish(); }

  // Connecting blocks, as the plugin does.
  Result<Step> perform(const Op& op, Times* times);
  bool established() const { return established_.load(std::memory_order_acquire); }
  bool open() const { return comm_ != nullptr; }
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  struct Live {
    void* raw = nullptr;
    const trace::Event* event = nullptr;
    Clock::time_point posted;
    CollData data;
    std::vector<Place> places;  // what is alone, and the parts
    bool gathers = false;
    bool scatters = false;
  };

  Result<void*> add(std::span<std::byte> memory) override;
  void remove(void* mhandle) override;
  Result<Step> init(const Op& op);
  Result<Step> listen(const Op& op);
  Result<Step> connect(const Op& op);
  Result<Step> close();
  Result<Step> finalize();
  Result<Step> post(const Op& op);
  Status prepare(const Op& op);
  ncclResult_t postPrepared(const Op& op, void** request);
  Result<Step> flush(const Op& op);
  Result<Step> test(const Op& op, Times* times);
  Status check(const Live& live) const;
  Result<const netdriver::CollContext*> context();
  Result<Step> failed(ncclResult_t result, const Op& op);
  Error error(const std::string& detail) const;

  const Queue* plan_;
  RankState* rank_;
  std::atomic<bool> established_{false};
  std::atomic<bool> broken_{false};
  std::unique_ptr<netdriver::CollContext> context_;
  void* comm_ = nullptr;  // of a listener or of a group
  netdriver::Handle handle_{};
  CommMemory memory_;
  std::unique_ptr<Live> prepared_;  // of the post that is tried
  std::map<uint64_t, Live> live_;   // by the trace's number
  void* flushing_ = nullptr;
};

}  // namespace weft::replay
