// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "src/base/config.h"
#include "weft/transport.h"

// Lanes between processes of one host through shared memory. One device, "local"; needs no library and no
// network. A device that is opened with DeviceInfo::cudaMemory set carries GPU memory of the process, too, in
// lanes where a trial copy worked. Any thread.
namespace weft::local {

std::unique_ptr<Transport> makeTransport(const Config& config);

}  // namespace weft::local
