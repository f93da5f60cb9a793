// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "src/coll/join_link.h"
#include "src/coll/pipe.h"

// A rank of a group at an aggregation daemon. Its group (group.h) owns it. Used by the thread that has the
// group.
namespace weft::agg {

constexpr size_t kHeads = 16;  // operations that a child may be ahead by

struct Child {
  std::unique_ptr<coll::Pipe> pipe;
  std::optional<coll::JoinLink> link;  // by which it joined; until it has the verdict
  uint32_t rank = 0;
  std::string name;

  // Announcements: receives that are posted in order into a ring of kHeads places.
  coll::Staging heads;
  core::MemoryHandle* headMemory = nullptr;
  core::Request* receives[kHeads] = {};
  uint64_t posted = 0;   // so far
  uint64_t arrived = 0;  // so far

  uint64_t late = 0;  // how often all others waited for it
};

}  // namespace weft::agg
