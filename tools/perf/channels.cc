// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/channels.h"

#include <cstring>

namespace weft::perf {

void CopyAlone::start(const Work& work) {
  const size_t bytes = work.count * work.type->bytes;
  if (work.input != work.output && bytes > 0) std::memcpy(work.output, work.input, bytes);
}

}  // namespace weft::perf
