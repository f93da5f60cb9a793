// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/agg/daemon.h"
#include "src/coll/tree.h"
#include "tests/coll/ranks.h"

// An aggregation daemon in this process, with a network of its own over the loop provider, and ranks that
// join it. One thread, but for what daemons have.
namespace weft::test {

constexpr const char* kTestSecret = "open sesame, says the rank";

// What a daemon on the loopback address is started with: a network of its own, and that secret.
agg::DaemonOptions daemonOptions(Config config = {});

// The rank's end of a tree, joined at a daemon of this host.
Result<std::unique_ptr<coll::TreeBackend>> joinAt(uint16_t port, const coll::Mesh& mesh,
                                                  const std::string& secret = kTestSecret);

class TreeOfDaemons {
 public:
  explicit TreeOfDaemons(agg::Limits limits = {});
  agg::Daemon& root() { return *daemon_; }
  Result<std::unique_ptr<coll::TreeBackend>> join(const coll::Mesh& mesh,
                                                  const std::string& secret = kTestSecret) const {
    return joinAt(daemon_->port(), mesh, secret);
  }
  Ranks::Make maker() const;

 private:
  std::unique_ptr<agg::Daemon> daemon_;
};

constexpr size_t kTestChunk = 16384;

}  // namespace weft::test
