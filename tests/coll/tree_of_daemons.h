// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/agg/daemon.h"
#include "src/coll/tree.h"
#include "tests/coll/ranks.h"

// Aggregation daemons in this process, each with a network of its own over the loop provider, and ranks that
// join them. One thread, but for what daemons have.
namespace weft::test {

// What a daemon on the loopback address is started with: a network of its own, the secret "open sesame".
agg::DaemonOptions daemonOptions(Config config = {});

// Where there is one, it may do something to the membership before the group has it.
using Change = std::function<void(coll::Membership&)>;

// The rank's end of a tree, joined at a daemon of this host with so many ranks of the group.
Result<std::unique_ptr<coll::TreeBackend>> joinAt(uint16_t port, int ranksThere, const coll::Mesh& mesh,
                                                  const std::string& secret = "open sesame",
                                                  const Change& change = {});

class TreeOfDaemons {
 public:
  // Without leaves there is one daemon; else a root with so many below it.
  explicit TreeOfDaemons(int leaves, agg::Limits limits = {});
  uint16_t portOf(int rank) const;  // ranks take the leaves in turn
  int ranksAt(int rank, int ranks) const;
  agg::Daemon& root() { return *daemons_[0]; }
  agg::Daemon& leaf(int index) { return *daemons_[static_cast<size_t>(index) + 1]; }
  size_t count() const { return daemons_.size(); }

  Result<std::unique_ptr<coll::TreeBackend>> join(const coll::Mesh& mesh,
                                                  const std::string& secret = "open sesame",
                                                  const Change& change = {}) const;
  Ranks::Make maker() const;
  Ranks::Make sparedMaker(const Change& change = {}) const;  // of meshes that connect all ranks

 private:
  static std::unique_ptr<agg::Daemon> start(const std::string& parent, const agg::Limits& limits);
  std::vector<std::unique_ptr<agg::Daemon>> daemons_;  // the root first
};

constexpr size_t kTestChunk = 16384;

}  // namespace weft::test
