// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>

#include "src/coll/kernels.h"

// The tables that an x86 processor can run.
namespace weft::coll {

namespace {

// The instruction sets of this processor, asked for once.
struct Runnable {
  std::array<const KernelTable*, 3> tables{&kPortableKernels};
  size_t count = 1;

  Runnable() {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx2) tables[count++] = &kAvx2Kernels;
    if (avx2 && avx512) tables[count++] = &kAvx512Kernels;
  }
};

}  // namespace

std::span<const KernelTable* const> runnableKernels() {
  static const Runnable runnable;
  return std::span(runnable.tables).first(runnable.count);
}

}  // namespace weft::coll
