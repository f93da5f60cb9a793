// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Compiled with -mavx2 -mf16c: called only where the processor has both (kernels_x86.cc).
#include <immintrin.h>

#include "src/coll/fold.h"

namespace weft::coll {

namespace {

struct Half {
  using Raw = uint16_t;
  using Wide = Vec<float, 32>;
  static constexpr size_t kLanes = 8;
  [[gnu::always_inline]] static Wide load(const uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  [[gnu::always_inline]] static void store(uint16_t* to, Wide value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace

constinit const KernelTable kAvx2Kernels = makeTable<32, Half>("avx2");

}  // namespace weft::coll
