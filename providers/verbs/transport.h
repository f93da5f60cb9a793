// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <optional>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "weft/transport.h"

// InfiniBand and RoCE by raw verbs behind the seam: reliable connected queue pairs, a shared completion queue
// and a shared receive queue a Queue. Thread-safe. libibverbs is opened here, at run time.
namespace weft::verbs {

struct Library;

// Code::unavailable, with the next step, when libibverbs is not there. Deadlines of lanes are by `clock`,
// which outlives the transport and all that it opened.
Result<std::unique_ptr<Transport>> makeTransport(const Config& config, const Clock& clock = Clock::system());
// Over one that was opened before.
std::unique_ptr<Transport> makeTransport(std::shared_ptr<const Library> library, const Config& config,
                                         const Clock& clock = Clock::system());

// How many cards libibverbs shows, whatever they can; nothing when it is not there to say so.
std::optional<int> cardsHere(const Config& config);

}  // namespace weft::verbs
