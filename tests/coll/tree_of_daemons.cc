// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/coll/tree_of_daemons.h"

#include "providers/loop/transport.h"
#include "src/base/log.h"
#include "src/coll/ring.h"
#include "tests/support/catch.h"

namespace weft::test {

TreeOfDaemons::TreeOfDaemons(agg::Limits limits) {
  agg::DaemonOptions daemon = daemonOptions();
  daemon.limits = limits;
  auto started = agg::Daemon::start(std::move(daemon));
  REQUIRE(started);
  daemon_ = started.take();
}

agg::DaemonOptions daemonOptions(Config config) {
  core::NetOptions options;
  options.config = std::move(config);
  options.transport = loop::makeTransport({});
  auto net = core::Net::create(std::move(options));
  REQUIRE(net);
  agg::DaemonOptions daemon;
  core::ContextOptions context;
  context.perCommunicator = true;
  context.communicator = 99;
  daemon.context = (*net)->openContext(std::move(context));
  daemon.listen = "127.0.0.1:0";
  daemon.secret = kTestSecret;
  return daemon;
}

Result<std::unique_ptr<coll::TreeBackend>> joinAt(uint16_t port, const coll::Mesh& mesh,
                                                  const std::string& secret) {
  coll::JoinOptions join;
  join.context = mesh.options().context;
  join.daemon = format("127.0.0.1:%u", port);
  join.secret = secret;
  join.timeout = Milliseconds(5000);
  join.request.group = mesh.group();
  join.request.ranks = static_cast<uint32_t>(mesh.ranks());
  join.request.rank = static_cast<uint32_t>(mesh.rank());
  join.request.chunkBytes = kTestChunk;
  join.request.name = format("rank %d", mesh.rank());
  TRY(auto membership, coll::joinDaemon(join));
  return coll::TreeBackend::create(std::move(membership), mesh.rank(), kTestChunk);
}

Ranks::Make TreeOfDaemons::maker() const {
  return [this](int, std::unique_ptr<coll::Mesh> mesh) -> std::unique_ptr<coll::Group> {
    auto tree = join(*mesh);
    if (tree) return coll::ringOf(*mesh, tree.take());
    WEFT_LOG(error, "%s", tree.error().message().c_str());
    return nullptr;
  };
}

}  // namespace weft::test
