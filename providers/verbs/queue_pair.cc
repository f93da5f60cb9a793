// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/queue_pair.h"

#include <algorithm>
#include <cerrno>

#include "providers/verbs/words.h"
#include "src/base/log.h"
#include "src/base/random.h"

// The states of a queue pair: INIT, RTR, RTS, ERR (InfiniBand specification, volume 1, 10.3.1).
namespace weft::verbs {

namespace {

constexpr uint32_t kInlineBytes = 64;    // bytes; a CTS or a credit record
constexpr uint8_t kMinRnrTimer = 12;     // 0.64 ms (InfiniBand specification, volume 1, "RNR NAK timer")
constexpr uint8_t kRnrRetryForever = 7;  // a peer without a receive is slow, not dead
constexpr uint8_t kHopLimit = 64;

// The index in our table of the entry with the chosen address.
uint8_t indexOf(const std::vector<GidEntry>& entries, const Gid& gid) {
  for (const GidEntry& entry : entries)
    if (entry.gid == gid) return static_cast<uint8_t>(entry.index);
  return 0;
}

}  // namespace

Result<std::shared_ptr<QueuePair>> QueuePair::create(std::shared_ptr<const QueueObjects> objects,
                                                     std::shared_ptr<const PortAddress> reachedBy,
                                                     uint32_t works) {
  auto pair = std::make_shared<QueuePair>(std::move(objects), std::move(reachedBy));
  TRY(pair->open(works));
  TRY(pair->initialise());
  pair->offerExtensions();
  return pair;
}

Status QueuePair::open(uint32_t works) {
  const Port& port = objects_->port;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = objects_->cq.get();
  attributes.srq = objects_->srq.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = works;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_inline_data = kInlineBytes;
  ibv_qp* raw = objects_->library->createQp(objects_->pd, &attributes);
  if (!raw) {  // some drivers have no inline data and refuse the queue pair for it
    attributes.cap.max_inline_data = 0;
    raw = objects_->library->createQp(objects_->pd, &attributes);
  }
  if (!raw) return verbsError("creating a queue pair", port.info.name, errno);
  qp_ = Handle<ibv_qp>(raw, objects_->library->destroyQp);
  inlineBytes_ = std::min(attributes.cap.max_inline_data, kInlineBytes);

  address_.ethernet = port.ethernet;
  address_.mtu = static_cast<uint8_t>(reachedBy_->mtu);
  address_.readsServed = port.readsServed;
  address_.lid = reachedBy_->lid;
  address_.needsHeader = reachedBy_->needsHeader;
  address_.pairs = {{raw->qp_num, static_cast<uint32_t>(randomU64()) & 0xffffff}};
  for (const GidEntry& entry : reachedBy_->gids.entries)
    address_.gids[port.ethernet && entry.family() != GidFamily::ipv4 ? 1 : 0] = entry.gid;
  return {};
}

Status QueuePair::modify(ibv_qp_attr* attributes, int mask, const std::string& what) {
  const int code = objects_->library->modifyQp(qp_.get(), attributes, mask);
  if (code == 0) return {};
  return verbsError("connecting a lane", objects_->port.info.name + " " + what, code);
}

Status QueuePair::initialise() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = objects_->port.settings.pkeyIndex;
  attributes.port_num = static_cast<uint8_t>(objects_->port.info.port);
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  return modify(&attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "to INIT");
}

// Enhanced connection establishment (ibv_query_ece(3)): by an opaque number a card tells what it can do
// beyond the specification, such as repeating only lost packets.
void QueuePair::offerExtensions() {
  const Library& library = *objects_->library;
  Ece offer;
  if (!objects_->port.settings.ece || !library.queryEce || !library.setEce) return;
  if (library.queryEce(qp_.get(), &offer) != 0 || offer.options == 0) return;  // most cards offer none
  address_.eceVendor = offer.vendor;
  address_.eceOptions = offer.options;
}

// By the man page the answering end reduces the offer of the asking end, and tells the result. Our ends tell
// each other at once, so there is no such round. Only the vendor could intersect two offers, as the number
// holds versions (UCX's src/uct/ib/mlx5 shows mlx5's layout). Equal offers need neither: both ends set what
// both offer. Cards with different offers connect without extensions.
Status QueuePair::agreeOnExtensions(const LaneAddress& peer) {
  const bool same = address_.eceVendor == peer.eceVendor && address_.eceOptions == peer.eceOptions;
  if (address_.eceOptions == 0 || !same) return {};
  Ece wanted{address_.eceVendor, address_.eceOptions};
  const int code = objects_->library->setEce(qp_.get(), &wanted);
  if (code == 0) return {};
  // The peer may have set them: a lane with extensions at one end only would look like a broken network.
  return verbsError("connecting a lane",
                    objects_->port.info.name +
                        " refuses the extensions it offers (ECE): set WEFT_IB_ECE=0 on "
                        "all ranks",
                    code);
}

// On the Dialer's thread.
Status QueuePair::connect(const LaneAddress& peer) {
  TRY(const size_t gid, commonGid(address_, peer));
  TRY(agreeOnExtensions(peer));
  TRY(receive(peer, gid));
  return send();
}

void QueuePair::route(const LaneAddress& peer, size_t gid, ibv_ah_attr* out) const {
  out->port_num = static_cast<uint8_t>(objects_->port.info.port);
  out->sl = objects_->port.settings.serviceLevel;
  out->dlid = peer.lid;
  out->is_global = goesByGid(address_, peer, gid);
  if (!out->is_global) return;
  const Gid& mine = address_.gids[gid];
  const Gid& theirs = peer.gids[gid];
  std::copy(theirs.begin(), theirs.end(), out->grh.dgid.raw);
  out->grh.sgid_index = indexOf(reachedBy_->gids.entries, mine);
  out->grh.hop_limit = kHopLimit;
  out->grh.traffic_class = static_cast<uint8_t>(objects_->trafficClass);
}

// To RTR: the peer's address is resolved here, which may take seconds.
Status QueuePair::receive(const LaneAddress& peer, size_t gid) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(address_.mtu, peer.mtu));
  attributes.dest_qp_num = peer.first().queuePair;
  attributes.rq_psn = peer.first().packetNumber;
  attributes.max_dest_rd_atomic = objects_->port.readsServed;
  attributes.min_rnr_timer = kMinRnrTimer;
  route(peer, gid, &attributes.ah_attr);
  readsAsked_ = std::max<uint8_t>(std::min(objects_->port.readsAsked, peer.readsServed), 1);
  const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  const std::string from = gidText(address_.gids[gid]);
  return modify(&attributes, mask, "from " + from + " to " + addressText(peer));
}

// To RTS.
Status QueuePair::send() {
  const Settings& settings = objects_->port.settings;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = settings.timeout;
  attributes.retry_cnt = settings.retryCount;
  attributes.rnr_retry = kRnrRetryForever;
  attributes.sq_psn = address_.first().packetNumber;
  attributes.max_rd_atomic = readsAsked_;
  return modify(&attributes,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                    IBV_QP_MAX_QP_RD_ATOMIC,
                "to RTS");
}

void QueuePair::fail() {
  failed_.store(true, std::memory_order_relaxed);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  (void)objects_->library->modifyQp(qp_.get(), &attributes, IBV_QP_STATE);
}

}  // namespace weft::verbs
