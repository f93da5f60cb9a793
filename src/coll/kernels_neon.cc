// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Every arm64 processor has what is used here, so it is compiled without a flag.
#include <arm_neon.h>

#include "src/coll/fold.h"

namespace weft::coll {

namespace {

// The conversions belong to the base of the architecture. Arithmetic in half precision, which later
// processors have, would round after each input.
struct Half {
  using Raw = uint16_t;
  using Wide = Vec<float, 16>;
  static constexpr size_t kLanes = 4;
  [[gnu::always_inline]] static Wide load(const uint16_t* from) {
    return vcvt_f32_f16(vreinterpret_f16_u16(loadVec<uint16x4_t>(from)));
  }
  [[gnu::always_inline]] static void store(uint16_t* to, Wide value) { storeVec(to, vcvt_f16_f32(value)); }
};

}  // namespace

constinit const KernelTable kNeonKernels = makeTable<16, Half>("neon");

}  // namespace weft::coll
