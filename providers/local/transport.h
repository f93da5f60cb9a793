// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "weft/transport.h"

// Lanes between processes of one host through shared memory. One device, "local"; needs no library and no
// network. A device that is opened with DeviceInfo::cudaMemory set carries GPU memory of the process, too, in
// lanes where a trial copy worked. Any thread.
namespace weft::local {

// Deadlines of lanes are by `clock`, which outlives the transport and all that it opened.
std::unique_ptr<Transport> makeTransport(const Config& config, const Clock& clock = Clock::system());

}  // namespace weft::local
