// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <optional>

#include "tools/perf/connector.h"
#include "tools/perf/options.h"
#include "tools/perf/windows.h"
#include "tools/perf/workload.h"

// A communicator of this rank, as NCCL has it: a context of the plugin, its connections, its data. Connected,
// and closed, by one thread and driven by another, as NCCL's service and progress threads do.
namespace weft::perf {

struct CommunicatorSetup {
  netdriver::Bootstrap* bootstrap = nullptr;
  netdriver::Net* net = nullptr;
  const netdriver::CollTable* offload = nullptr;  // null: the plugin has none
  netdriver::RmaTable* oneSided = nullptr;        // the same
  const Options* options = nullptr;
  int device = 0;
  const Operation* operation = nullptr;
  const Workload* workload = nullptr;
  int number = 0;
  OnThread onThread;  // the thread that connects it
};

class Communicator {
  struct Key {};

 public:
  explicit Communicator(Key) {}
  // All ranks at the same time; called on the bootstrap's thread.
  static Result<std::unique_ptr<Communicator>> create(const CommunicatorSetup& setup);

  // The operation of a case on the data in a slot; progress until done.
  void start(const Case& c, size_t slot);
  Status progress(bool* moved);
  bool done() const;

  uint64_t messages() const;
  const Workload& workload() const { return *workload_; }
  int number() const { return number_; }

 private:
  Result<std::unique_ptr<Collective>> connect(const CommunicatorSetup& setup, int instance);
  Result<std::shared_ptr<netdriver::CollComm>> connectOffload(const CommunicatorSetup& setup);
  Status openWindows(const CommunicatorSetup& setup);

  // Tells the plugin what comes, where that is not what came before.
  void announce(const Case& c);

  int number_ = 0;
  int channels_ = 1;
  std::optional<uint32_t> announced_;  // operations
  const Workload* workload_ = nullptr;
  std::optional<netdriver::Context> context_;
  std::unique_ptr<netdriver::CollContext> offload_;
  std::shared_ptr<Windows> windows_;                    // of all instances
  std::vector<std::unique_ptr<Collective>> instances_;  // side by side
};

}  // namespace weft::perf
