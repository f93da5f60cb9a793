// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/softgpu/api.h"
#include "tests/softgpu/driver/driver.h"

// The shared runtime (libcudart.so) as far as NCCL and simple programs use it: NVIDIA's cuda_runtime_api.h
// documents the functions. Each of them calls the driver stand-in and keeps the last error of its thread.
namespace softgpu {

// Remembers a failure for cudaGetLastError and returns it.
Result keep(Result result);

// Gives a thread without a context that of the device it chose, as the runtime does with the first call that
// needs one. The runtime keeps that context for the process.
void useContext();

struct Size3 {  // dim3
  unsigned x, y, z;
};

inline DevicePointer addressOf(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

// Copies that may be done in any order; here they are done in the one they are named in.
Result copyBatch(void* const* to, const void* const* from, const size_t* sizes, size_t count, void* stream);

// The driver's function for a kernel's stub on the host; null when no library registered it.
void* kernelOf(const void* symbol);

}  // namespace softgpu
