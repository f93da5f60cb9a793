// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/offload.h"

#include "src/base/log.h"
#include "src/coll/kernels.h"
#include "src/coll/peers.h"
#include "src/coll/ring.h"
#include "src/coll/sharp.h"
#include "src/coll/tree.h"

// Forming a group: first vote, backend, second vote.
namespace weft::coll {

namespace {

constexpr const char* kOffloads[] = {"off", "peers", "tree", "sharp"};

// The daemon of this rank. Where WEFT_AGGD names several, the devices take them in turn.
std::string daemonOf(const Config& config, int device) {
  std::vector<std::string> named;
  for (size_t at = 0; at <= config.aggd.size();) {
    const size_t comma = std::min(config.aggd.find(',', at), config.aggd.size());
    named.push_back(config.aggd.substr(at, comma - at));
    at = comma + 1;
  }
  return named[static_cast<size_t>(device) % named.size()];
}

// The settings that have to be equal on all ranks, as text for the ballot.
std::string settingsOf(const Config& config, int device) {
  const std::string text =
      format("WEFT_COLLNET=%s WEFT_COLLNET_CHUNK=%d WEFT_COLLNET_ONE_STEP=%d", config.collnet.c_str(),
             config.collnetChunkBytes, config.collnetOneStepBytes);
  return config.collnet == "tree" ? text + " WEFT_AGGD=" + daemonOf(config, device) : text;
}

// The verdict of all ranks.
Status agree(Mesh& mesh, const Config& config, const Status& ready, const std::string& capabilities = {}) {
  Ballot mine;
  mine.ready = static_cast<bool>(ready);
  mine.settings = settingsOf(config, mesh.options().device) + capabilities;
  if (!ready) mine.reason = ready.error().message();
  TRY(const Verdict verdict, mesh.vote(mine));
  if (verdict.formed) return {};
  return Error(Code::unavailable, "forming a collective group", verdict.reason);
}

// Takes the mesh out of `owner`: the backend owns it from then on.
Result<std::unique_ptr<PeersBackend>> makePeers(Mesh& mesh, const Config& config,
                                                std::unique_ptr<Mesh>* owner) {
  TRY(mesh.extend());
  PeersOptions options;
  options.pieceBytes = static_cast<size_t>(config.collnetChunkBytes);
  options.oneStepBytes = static_cast<size_t>(config.collnetOneStepBytes);
  return std::make_unique<PeersBackend>(std::move(*owner), options);
}

// NCCL gathers and scatters by every group that it has, and asks for neither. What the switches do not do the
// ranks reduce in host memory, so a gap under GPU memory would end the job at its first gather.
Status checkGaps(const Mesh& mesh, const SharpJob& job) {
  TRY(const core::Properties device, mesh.options().context->net().properties(mesh.options().device));
  if (job.streams() || (!device.cudaMemory && !device.dmabufMemory)) return {};
  return Error(
      Code::unavailable, "forming a collective group",
      format("the switches reduce whole vectors only, and %s takes GPU memory, in which the ranks "
             "themselves cannot gather and scatter; set SHARP_COLL_ENABLE_SAT=1, or WEFT_GDR=off for "
             "host buffers",
             device.name.c_str()));
}

// The ranks' connections are needed to set up the library, and for the operations that the switches cannot
// do.
Result<std::unique_ptr<Group>> makeSharp(Mesh& mesh, const Config& config, std::unique_ptr<Mesh>* owner,
                                         std::string* capabilities) {
  auto library = SharpLibrary::open(config.libsharp);
  // A rank without a library has to give up, too: the libraries of the other ranks wait for its messages
  // while they set themselves up.
  if (!library) OutOfBand(mesh, mesh.timeout()).giveUp();
  if (!library) return library.takeError();
  TRY(auto job, SharpJob::open(mesh, library.take()));
  *capabilities = " " + job->describe();
  TRY(checkGaps(mesh, *job));
  TRY(auto peers, makePeers(mesh, config, owner));
  return ringOf(mesh, std::make_unique<SharpBackend>(std::move(job), std::move(peers)));
}

// This rank's membership at the daemon. Blocks until all ranks have joined it.
Result<std::unique_ptr<Group>> makeTree(const Mesh& mesh, const Config& config) {
  JoinOptions join;
  join.context = mesh.options().context;
  join.device = mesh.options().device;
  join.daemon = daemonOf(config, join.device);
  join.secret = config.aggdSecret;
  join.timeout = config.collnetTimeout;
  join.request.group = mesh.group();
  join.request.ranks = static_cast<uint32_t>(mesh.ranks());
  join.request.rank = static_cast<uint32_t>(mesh.rank());
  join.request.chunkBytes = static_cast<uint32_t>(config.collnetChunkBytes);
  join.request.name = format("rank %d", mesh.rank());
  TRY(auto membership, joinDaemon(std::move(join)));
  TRY(auto tree,
      TreeBackend::create(std::move(membership), mesh.rank(), static_cast<size_t>(config.collnetChunkBytes)));
  return ringOf(mesh, std::move(tree));
}

// The backend of the settings. A rank with none is no error yet: it tells the others by its vote.
Result<Offload> wantedOffload(const Config& config) {
  TRY(const Offload backend, offloadOf(config));
  if (backend != Offload::off) return backend;
  return Error(Code::unavailable, "forming a collective group",
               "WEFT_COLLNET is off there; peers, tree or sharp turns collective offload on, on every rank");
}

}  // namespace

Result<Offload> offloadOf(const Config& config) {
  for (size_t i = 0; i < std::size(kOffloads); i++)
    if (config.collnet == kOffloads[i]) return static_cast<Offload>(i);
  return Error(Code::config, "reading settings",
               format("WEFT_COLLNET is \"%s\"; allowed: off, peers, tree or sharp", config.collnet.c_str()));
}

bool offloadReduces(const Config& config, ElementType type, ReduceOp op) {
  if (!canReduce(type, op)) return false;
  return config.collnet != kOffloads[static_cast<size_t>(Offload::sharp)] || SharpJob::reduces(type, op);
}

namespace {

// Two votes: before anything but the mesh is set up, and when every rank has its group or its error. Between
// them only the ranks' own set-up can fail. The mesh goes to the group's backend, where one is made.
Result<std::unique_ptr<Group>> formGroup(std::unique_ptr<Mesh>& mesh, const Config& config) {
  const auto backend = wantedOffload(config);
  Mesh& connected = *mesh;
  TRY(agree(connected, config, backend ? Status() : Status(backend.error())));
  Result<std::unique_ptr<Group>> group = Error(Code::unavailable, "forming a collective group",
                                               "WEFT_COLLNET=" + config.collnet + " is not there");
  std::string capabilities;
  if (*backend == Offload::peers) {
    auto peers = makePeers(connected, config, &mesh);
    group = peers ? Result<std::unique_ptr<Group>>(ringOf(connected, peers.take())) : peers.takeError();
  }
  if (*backend == Offload::tree) group = makeTree(connected, config);
  if (*backend == Offload::sharp) group = makeSharp(connected, config, &mesh, &capabilities);
  Status agreed = agree(connected, config, group ? Status() : Status(group.error()), capabilities);
  if (agreed) return group;
  if (group) (*group)->close();
  return agreed.takeError();
}

}  // namespace

// What the last words to the other ranks leave by stays until they have left.
Result<std::unique_ptr<Group>> openGroup(MeshOptions options) {
  const Config& config = options.context->net().config();
  options.timeout = config.collnetTimeout;
  options.full = false;
  TRY(auto mesh, Mesh::open(std::move(options)));
  auto group = formGroup(mesh, config);
  if (!group && mesh) mesh->close();
  return group;
}

}  // namespace weft::coll
