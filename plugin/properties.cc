// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/properties.h"

// The facts about devices whose form does not depend on the table's version.
namespace weft::plugin {

ncclResult_t countDevices(int* count) {
  return guard("devices", [&]() -> Status {
    if (!count) return Error(Code::invalidArgument, "counting devices", "no place for the answer");
    *count = 0;
    TRY(*count, Plugin::get().deviceCount());
    return {};
  });
}

// Host memory always works; the others as the trial registration showed.
int pointerSupport(const core::Properties& from) {
  return NCCL_PTR_HOST | (from.cudaMemory ? NCCL_PTR_CUDA : 0) | (from.dmabufMemory ? NCCL_PTR_DMABUF : 0);
}

}  // namespace weft::plugin
