// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/mem/gpu/driver.h"
#include "src/mem/gpu_path.h"
#include "weft/transport.h"

// Answers "is GPUDirect on, and if not, why". The ladder is the list of ways from a card to a GPU's memory,
// best first. Each is tried with a real registration of real memory, and each that fails has a reason.
// Between processes of one host there is no card: the one way is memory that the driver shares, tried with a
// real copy. docs/gpudirect.md explains the ways.
namespace weft::mem {

// A way and the outcome of its trial.
struct Rung {
  std::string name;  // "data direct", "dma-buf", "peer memory", "CUDA's handles"
  bool works = false;
  std::string why;  // why it does not work; for one that works, a particularity worth the log
};

// The answer for one card and one GPU. A value; the log, `weft info` and the plugin's properties are made of
// it.
struct GdrVerdict {
  std::string device;
  int gpu = -1;  // the driver's number; -1: none was asked about
  std::string gpuName;
  std::vector<Rung> rungs;  // the last one, staging by NCCL, always works
  GpuPath path;
  bool ordersWrites = false;  // no flush is needed
  bool forceFlush = false;    // NCCL has to flush where it would not by itself
  std::string slow;           // why it is likely slow although it is on; else empty

  // The best rung that works.
  const Rung& taken() const;
  std::string line() const;  // the whole verdict in one line, for the log
};

// The question. Everything it points at outlives climb().
struct LadderInput {
  const DeviceInfo* device = nullptr;
  std::function<Result<std::shared_ptr<Device>>()>
      open;                                   // called once at most, when there is something to try
  std::shared_ptr<const gpu::Driver> driver;  // null: none, and whyNoDriver says why
  std::string whyNoDriver;
  int gpu = -1;  // -1: no GPU is in use by this process
  bool off = false;
  bool forceFlush = false;  // the user does not believe in an order of writes
};

// Tries the rungs. It may take seconds: opening a device and registering memory block.
GdrVerdict climb(const LadderInput& input);

}  // namespace weft::mem
