// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/table.h"

#include <algorithm>

#include "tools/replay/rank_run.h"

namespace weft::replay {

Error Table::error(const std::string& detail) const {
  return {Code::remote, "replay", plan_->name() + ": " + detail};
}

int Table::device() const {
  return plan_->device % std::max(1, rank_->devices);
}

}  // namespace weft::replay
