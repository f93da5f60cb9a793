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

std::vector<netdriver::Handle> Table::handlesOfMembers() const {
  std::vector<netdriver::Handle> handles;
  for (const Queue* member : plan_->members) {
    const auto handle = rank_->board->find({member->rank, member->listener->number});
    if (!handle) return {};
    handles.push_back(*handle);
  }
  return handles;
}

}  // namespace weft::replay
