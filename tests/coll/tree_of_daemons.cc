// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/coll/tree_of_daemons.h"

#include "providers/loop/transport.h"
#include "src/base/log.h"
#include "src/coll/ring.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"

namespace weft::test {

TreeOfDaemons::TreeOfDaemons(int leaves, agg::Limits limits) {
  daemons_.push_back(start("", limits));
  const std::string root = daemons_[0]->name();
  for (int leaf = 0; leaf < leaves; leaf++) daemons_.push_back(start(root, limits));
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
  daemon.secret = "open sesame";
  return daemon;
}

Result<std::unique_ptr<coll::TreeBackend>> joinAt(uint16_t port, int ranksThere, const coll::Mesh& mesh,
                                                  const std::string& secret, const Change& change) {
  coll::JoinOptions join;
  join.context = mesh.options().context;
  join.daemon = format("127.0.0.1:%u", port);
  join.secret = secret;
  join.timeout = Milliseconds(5000);
  join.request.group = mesh.group();
  join.request.ranks = static_cast<uint32_t>(mesh.ranks());
  join.request.order = static_cast<uint32_t>(mesh.rank());
  join.request.local = static_cast<uint32_t>(ranksThere);
  join.request.chunkBytes = kTestChunk;
  join.request.name = format("rank %d", mesh.rank());
  TRY(auto membership, coll::joinDaemon(join));
  if (change) change(membership);
  return coll::TreeBackend::create(std::move(membership), join.request.order, kTestChunk);
}

std::unique_ptr<agg::Daemon> TreeOfDaemons::start(const std::string& parent, const agg::Limits& limits) {
  agg::DaemonOptions daemon = daemonOptions();
  daemon.parent = parent;
  daemon.limits = limits;
  auto started = agg::Daemon::start(std::move(daemon));
  REQUIRE(started);
  return started.take();
}

uint16_t TreeOfDaemons::portOf(int rank) const {
  if (daemons_.size() == 1) return daemons_[0]->port();
  return daemons_[1 + static_cast<size_t>(rank) % (daemons_.size() - 1)]->port();
}

int TreeOfDaemons::ranksAt(int rank, int ranks) const {
  int count = 0;
  for (int other = 0; other < ranks; other++)
    if (portOf(other) == portOf(rank)) count++;
  return count;
}

Result<std::unique_ptr<coll::TreeBackend>> TreeOfDaemons::join(const coll::Mesh& mesh,
                                                               const std::string& secret,
                                                               const Change& change) const {
  return joinAt(portOf(mesh.rank()), ranksAt(mesh.rank(), mesh.ranks()), mesh, secret, change);
}

Ranks::Make TreeOfDaemons::maker() const {
  return [this](int, std::unique_ptr<coll::Mesh> mesh) -> std::unique_ptr<coll::Group> {
    auto tree = join(*mesh);
    if (tree) return coll::ringOf(*mesh, tree.take());
    WEFT_LOG(error, "%s", tree.error().message().c_str());
    return nullptr;
  };
}

Ranks::Make TreeOfDaemons::sparedMaker(const Change& change) const {
  return [this, change](int, std::unique_ptr<coll::Mesh> mesh) -> std::unique_ptr<coll::Group> {
    auto tree = join(*mesh, "open sesame", change);
    if (!tree) {  // this is a thread of its own, where a failed REQUIRE would end the program
      WEFT_LOG(error, "%s", tree.error().message().c_str());
      return nullptr;
    }
    coll::PeersOptions options;
    options.pieceBytes = kTestChunk;
    const coll::Mesh& all = *mesh;
    auto peers = std::make_unique<coll::PeersBackend>(std::move(mesh), options);
    const Milliseconds time(500 * patience());
    return coll::ringOf(all, tree.take(), std::make_unique<coll::Spare>(std::move(peers), time));
  };
}

}  // namespace weft::test
