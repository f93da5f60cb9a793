// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Compiled with -mavx512f -mavx512bw -mavx512dq -mavx512vl: called only where the processor has all of them
// (kernels_x86.cc).
#include <immintrin.h>

#include "src/coll/fold.h"

namespace weft::coll {

namespace {

struct Half {
  using Raw = uint16_t;
  using Wide = Vec<float, 64>;
  static constexpr size_t kLanes = 16;
  [[gnu::always_inline]] static Wide load(const uint16_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  [[gnu::always_inline]] static void store(uint16_t* to, Wide value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace

constinit const KernelTable kAvx512Kernels = makeTable<64, Half>("avx512");

}  // namespace weft::coll
