// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>

#include "tools/netdriver/bootstrap.h"
#include "tools/perf/collective.h"

// Connects the ranks of one communicator as an operation wants them. Every rank calls it alike.
namespace weft::perf {

// Runs a piece of work on a certain thread, waits for it and returns what it returned.
using OnThread = std::function<Status(const std::function<Status()>& job)>;

struct ConnectRequest {
  netdriver::Bootstrap* bootstrap = nullptr;
  const netdriver::Context* context = nullptr;
  int device = 0;
  // True where `from` sends to `to`.
  std::function<bool(int from, int to)> connects;
  OnThread onThread;  // makes the plugin's calls; those to the bootstrap stay on this one
};

// The comms by peer, empty ones where there is no connection.
struct Connections {
  std::vector<netdriver::Comm> to;
  std::vector<netdriver::Comm> from;
};

// In rounds, as NCCL does: in each, a rank connects to the one a certain distance ahead and accepts from the
// one as far behind, so it needs one handle at a time and nobody waits for anyone in a circle.
Result<Connections> connectRanks(const ConnectRequest& request);

}  // namespace weft::perf
