// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "weft/transport.h"

// The network over plain TCP sockets, without any library: every interface that is up is a device. Where no
// better fabric is there, this one carries the traffic.
namespace weft::tcp {

// Deadlines of lanes are by `clock`, which outlives the transport and all that it opened.
std::unique_ptr<Transport> makeTransport(const Config& config, const Clock& clock = Clock::system());

}  // namespace weft::tcp
