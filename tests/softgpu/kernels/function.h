// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

namespace softgpu {

// What a batch of work is to be done with, by names as NCCL's build has them: ("AllReduce", "Sum", "f32",
// "RING", "SIMPLE"). SendRecv has none but the first, AllGather and Broadcast no reduction and no type.
struct DeviceFunction {
  std::string collective, reduction, type, algorithm, protocol;
  std::string text() const;
};

// The function of a number in the device table of an unfiltered build of that NCCL version; null when there
// is none.
const DeviceFunction* findFunction(int version, unsigned id);

}  // namespace softgpu
