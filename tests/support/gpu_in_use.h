// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "src/mem/gpu/driver.h"

// A GPU as a test program uses it, on any driver: NVIDIA's, or the software one of tests/softgpu.
namespace weft::test {

// True where libcuda.so.1 is the software GPU. Questions that only it can answer (how often something is
// mapped, that no processor touches a GPU's memory) are asked of it alone.
bool isSoftwareGpu();

// GPU 0's primary context, current in the thread that made this, as whoever computes on a GPU has one: a
// driver makes none by itself, and weft takes a process without one for a process that uses no GPU. The
// context is kept until the process ends; a forked child of it must not call CUDA.
class GpuInUse {
 public:
  GpuInUse();
  explicit operator bool() const { return why_.empty(); }
  const std::string& why() const { return why_; }  // there is none

 private:
  std::string why_;
};

// Copies of the software GPU stand still while this lives: nothing that waits for one can go on.
class HeldCopies {
 public:
  HeldCopies();
  ~HeldCopies();
  HeldCopies(const HeldCopies&) = delete;
  HeldCopies& operator=(const HeldCopies&) = delete;
  int underWay() const;
};

// A kernel runs while this lives, and calls of the driver wait for it. Of the software GPU, with
// SOFTGPU_WAITS=1.
class HeldKernel {
 public:
  HeldKernel();
  ~HeldKernel();
  HeldKernel(const HeldKernel&) = delete;
  HeldKernel& operator=(const HeldKernel&) = delete;
  int callsThatWait() const;
};

// Copies between memory of GPUs fail in this process while this lives. Of the software GPU.
class FailingCopies {
 public:
  FailingCopies();
  ~FailingCopies();
  FailingCopies(const FailingCopies&) = delete;
  FailingCopies& operator=(const FailingCopies&) = delete;
};

// Why no processor can map a dma-buf of the GPU's memory, so that no card in software can be had; empty: it
// can. A GPU's own says error 524.
std::string whyNoSoftwareCard(const mem::gpu::Driver& driver);

}  // namespace weft::test
