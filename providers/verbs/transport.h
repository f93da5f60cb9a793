// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <optional>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "weft/transport.h"

// InfiniBand and RoCE by raw verbs behind the seam: reliable connected queue pairs, and a completion queue
// and a shared receive queue for each Queue. Thread-safe. libibverbs is opened here, at run time.
namespace weft::verbs {

struct Library;

// Code::unavailable with the next step where libibverbs is not there. Lanes take their deadlines from
// `clock`, which outlives the transport and all that it opened.
Result<std::unique_ptr<Transport>> makeTransport(const Config& config, const Clock& clock = Clock::system());
// Over a library that was opened before.
std::unique_ptr<Transport> makeTransport(std::shared_ptr<const Library> library, const Config& config,
                                         const Clock& clock = Clock::system());

// The number of cards that libibverbs shows, usable or not; nothing where it cannot be asked.
std::optional<int> cardsHere(const Config& config);

}  // namespace weft::verbs
