// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "providers/verbs/ports.h"
#include "src/base/clock.h"

// A trial of what the protocol relies on and a driver may do otherwise, over a lane of the port to itself. It
// takes some milliseconds, at discovery; control path.
namespace weft::verbs {

struct CardHabits {
  bool carriesEmpty = true;  // a notification of a write of no bytes arrives
  bool tellsLength = true;   // a notification tells how long its write was
  std::string untried;       // why nothing is known; empty: it was tried
};

CardHabits tryCard(const std::shared_ptr<const Library>& library, const Port& port, const Clock& clock);

}  // namespace weft::verbs
