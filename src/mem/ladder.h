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

// "Is GPUDirect on, and if not, why": the ways from a card to a GPU's memory, best first, each tried with a
// real registration of real memory, and the reason of each that fails. Between processes of one host, where
// there is no card, the one way is memory that the driver shares, tried with a real copy. docs/gpudirect.md
// explains them.
namespace weft::mem {

struct Rung {
  std::string name;  // "dma-buf", "peer memory", "CUDA's handles"
  bool works = false;
  std::string why;  // not; or, of one that works, what is particular
};

// A card and a GPU.
struct GdrVerdict {
  std::string device;
  int gpu = -1;  // the driver's number; -1: none was asked about
  std::string gpuName;
  std::vector<Rung> rungs;  // the last one, staging by NCCL, always works
  GpuPath path;
  bool ordersWrites = false;  // no flush is needed
  bool forceFlush = false;    // NCCL has to flush where it would not by itself
  std::string slow;           // on, and yet likely slow: why

  const Rung& taken() const;
  std::string line() const;  // all of it, for the log
};

struct LadderInput {
  const DeviceInfo* device = nullptr;
  std::function<Result<std::shared_ptr<Device>>()>
      open;                                   // called once at most, when there is something to try
  std::shared_ptr<const gpu::Driver> driver;  // null: none, and whyNoDriver says why
  std::string whyNoDriver;
  int gpu = -1;  // -1: no GPU is in use by this process
  bool off = false;
};

GdrVerdict climb(const LadderInput& input);

}  // namespace weft::mem
