// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "src/base/config.h"
#include "weft/transport.h"

// The network over plain TCP sockets, without any library: every interface that is up is a device. Where no
// better fabric is there, this one carries the traffic.
namespace weft::tcp {

std::unique_ptr<Transport> makeTransport(const Config& config);

}  // namespace weft::tcp
