// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/opening.h"

namespace weft::control {

void Opening::dial(DialPlan plan) {
  dial_ = std::make_unique<Dial>(loop_, *this, std::move(plan));
  dial_->start();
}

}  // namespace weft::control
