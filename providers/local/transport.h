// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "weft/transport.h"

// Lanes between processes of a host through shared memory. There is one device, "local"; no library and no
// network is needed. A device that is opened with DeviceInfo::cudaMemory set carries the process's GPU memory
// too, in lanes where a trial copy worked. Any thread.
namespace weft::local {

// Lanes take their deadlines from `clock`, which outlives the transport and all that it opened.
std::unique_ptr<Transport> makeTransport(const Config& config, const Clock& clock = Clock::system());

}  // namespace weft::local
