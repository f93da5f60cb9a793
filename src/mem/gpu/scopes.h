// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/mem/gpu/driver.h"

// How the functions of Driver enter CUDA: scopes of one call. Only the sources of this folder include it.
namespace weft::mem::gpu {

// While it lives, calls of this thread do not count as calls of a stream that another thread captures.
// cuThreadExchangeStreamCaptureMode swaps the mode with `mode_`, so the destructor's call restores the old
// one.
class Driver::Relaxed {
 public:
  explicit Relaxed(const Functions& call) : call_(call) {
    changed_ = call_.cuThreadExchangeStreamCaptureMode(&mode_) == kSuccess;
  }
  ~Relaxed() {
    if (changed_) (void)call_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  const Functions& call_;
  int mode_ = kRelaxedCapture;
  bool changed_ = false;
};

// Makes the GPU's primary context current on the calling thread while it lives. CUDA's runtime, and so NCCL,
// uses that context. code() tells whether it worked; the destructor undoes just the steps that did.
class Driver::InContext {
 public:
  InContext(const Functions& call, int gpu) : call_(call) {
    code_ = call_.cuDeviceGet(&device_, gpu);
    if (code_ != kSuccess) return;
    Context context = nullptr;
    code_ = call_.cuDevicePrimaryCtxRetain(&context, device_);
    retained_ = code_ == kSuccess;
    if (!retained_) return;
    code_ = call_.cuCtxPushCurrent_v2(context);
    pushed_ = code_ == kSuccess;
  }
  ~InContext() {
    Context context = nullptr;
    if (pushed_) (void)call_.cuCtxPopCurrent_v2(&context);
    if (retained_) (void)call_.cuDevicePrimaryCtxRelease_v2(device_);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  Result32 code() const { return code_; }

 private:
  const Functions& call_;
  Result32 code_ = kSuccess;
  int device_ = 0;
  bool retained_ = false;
  bool pushed_ = false;
};

}  // namespace weft::mem::gpu
