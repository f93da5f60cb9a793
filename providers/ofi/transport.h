// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "weft/transport.h"

// Any libfabric provider behind the seam. Thread-safe. libfabric is opened here, at run time, and asked once.
namespace weft::ofi {

// `name` as WEFT_PROVIDER has it after "ofi:": "efa", "efa-direct", "verbs", "tcp", "net", "shm",
// "tcp;ofi_rxm", or any name that fi_info shows. Empty: the best provider that has a usable card;
// Transport::name() tells which. An error where libfabric is not there. Lanes take their deadlines from
// `clock`, which outlives the transport and all that it opened.
Result<std::unique_ptr<Transport>> makeTransport(const std::string& name, const Config& config,
                                                 const Clock& clock = Clock::system());

}  // namespace weft::ofi
