// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/netdriver/library.h"
#include "tools/perf/communicator.h"
#include "tools/perf/crew.h"

// A loaded plugin and the communicators of this rank that work over it. Owns both; made and used by the
// crew's thread 0.
namespace weft::perf {

struct TeamSetup {
  std::string plugin;  // empty: weft's own
  const Options* options = nullptr;
  const Operation* operation = nullptr;
  netdriver::Bootstrap* bootstrap = nullptr;
  Crew* crew = nullptr;
  std::span<const Workload> workloads;  // one for each communicator
};

class Team {
  struct Key {};

 public:
  explicit Team(Key) {}
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  // Loads and initialises the plugin.
  static Result<std::unique_ptr<Team>> open(const TeamSetup& setup);
  // All ranks at the same time.
  Status connect();

  netdriver::Library& library() { return *library_; }
  const netdriver::Properties& device() const { return device_; }
  int number() const { return number_; }  // the device's
  // As weft names it; empty: another plugin's.
  const std::string& fabric() const { return fabric_; }

  std::span<const std::unique_ptr<Communicator>> communicators() const { return communicators_; }
  // Which of them a thread drives.
  std::vector<Communicator*> ofThread(int thread, int threads) const;
  uint64_t messages() const;

 private:
  Status openPlugin();
  Status readDevice(const std::string& path);
  OnThread serviceOf(size_t communicator);

  TeamSetup setup_;
  std::unique_ptr<netdriver::Library> library_;
  std::optional<netdriver::Context> context_;  // keeps the plugin initialised, as it was at first
  netdriver::Properties device_;
  std::string fabric_;
  int number_ = 0;  // its
  // As NCCL's service threads: one for each communicator connects, registers and closes, and sleeps
  // meanwhile.
  std::optional<Crew> services_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace weft::perf
