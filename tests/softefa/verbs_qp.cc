// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Queue pairs: SRD through efadv_create_qp_ex, UD through ibv_create_qp_ex.
#include <bit>
#include <cerrno>
#include <utility>

#include <infiniband/verbs.h>

#include "tests/softefa/efa_abi.h"
#include "tests/softefa/verbs_objects.h"

namespace softefa {

namespace {

// Operations that a NIC of that generation can do.
uint64_t operationsOf(Generation generation, bool datagrams) {
  uint64_t operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  if (datagrams) return operations;
  if (generation >= Generation::read) operations |= IBV_QP_EX_WITH_RDMA_READ;
  if (generation >= Generation::write)
    operations |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  return operations;
}

int refuse(const Nic& nic, const ibv_qp_init_attr_ex& attr, const EfaQpInitAttr* efa) {
  const Generation generation = nic.settings().generation;
  const ibv_qp_cap& cap = attr.cap;
  if (!(attr.comp_mask & IBV_QP_INIT_ATTR_PD) || !attr.send_cq || !attr.recv_cq || attr.srq) return EINVAL;
  if (cap.max_send_wr > kMaxSends || cap.max_recv_wr > kMaxReceives) return EINVAL;
  if (cap.max_send_sge > kMaxSendSges || cap.max_recv_sge > kMaxReceiveSges) return EINVAL;
  if (cap.max_inline_data > kMaxInline) return EINVAL;
  const bool named = (attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (named && attr.send_ops_flags & ~operationsOf(generation, !efa)) return EOPNOTSUPP;
  const bool unsolicited = efa && (efa->flags & kQpUnsolicitedWriteReceive) != 0;
  return unsolicited && generation < Generation::unsolicited ? EOPNOTSUPP : 0;
}

QueuePair wantedPair(const ibv_qp_init_attr_ex& attr, const EfaQpInitAttr* efa) {
  QueuePair wanted;
  wanted.datagrams = !efa;
  wanted.unsolicited = efa && (efa->flags & kQpUnsolicitedWriteReceive) != 0;
  wanted.maxSends = std::bit_ceil(std::max(attr.cap.max_send_wr, 1U));
  wanted.maxReceives = std::bit_ceil(std::max(attr.cap.max_recv_wr, 1U));
  wanted.domain = attr.pd;
  wanted.sendCq = objectOf<PolledQueue>(attr.send_cq)->queue.get();
  wanted.receiveCq = objectOf<PolledQueue>(attr.recv_cq)->queue.get();
  return wanted;
}

void countUsers(const ibv_qp& qp, int by) {
  objectOf<ProtectionDomain>(qp.pd)->users += by;
  objectOf<PolledQueue>(qp.send_cq)->users += by;
  objectOf<PolledQueue>(qp.recv_cq)->users += by;
}

ibv_qp* createPair(ibv_context* context, ibv_qp_init_attr_ex& attr, const EfaQpInitAttr* efa) {
  Nic& nic = nicOf(context);
  errno = nic.plannedFailure("create_qp");
  if (errno == 0) errno = refuse(nic, attr, efa);
  if (errno != 0) return nullptr;
  QueuePair* const qp = nic.createQueuePair(wantedPair(attr, efa));
  if (!qp) {
    errno = ENOMEM;
    return nullptr;
  }
  auto pair = std::make_unique<PostedPair>();
  pair->qp = qp;
  pair->nic = &nic;
  ibv_qp& base = pair->verbs.qp_base;
  base.context = context;
  base.qp_context = attr.qp_context;
  base.pd = attr.pd;
  base.send_cq = attr.send_cq;
  base.recv_cq = attr.recv_cq;
  base.qp_num = qp->qpn;
  base.qp_type = attr.qp_type;
  const bool named = (attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  setWorkCalls(pair->verbs, named ? attr.send_ops_flags : 0);
  countUsers(base, 1);
  return &release(std::move(pair))->verbs.qp_base;
}

// May a queue pair go from one state to the other?
bool mayFollow(ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_ERR || to == IBV_QPS_RESET) return true;
  return (from == IBV_QPS_RESET && to == IBV_QPS_INIT) || (from == IBV_QPS_INIT && to == IBV_QPS_RTR) ||
         (from == IBV_QPS_RTR && to == IBV_QPS_RTS) || from == to;
}

}  // namespace

ibv_qp* createQp(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  if (attr->qp_type == IBV_QPT_UD) return createPair(context, *attr, nullptr);
  errno = EOPNOTSUPP;
  return nullptr;
}

}  // namespace softefa

using namespace softefa;

extern "C" {

ibv_qp* softefa_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr, const EfaQpInitAttr* efa,
                          uint32_t size) {
  if (attr->qp_type != IBV_QPT_DRIVER || size < offsetof(EfaQpInitAttr, flags) || efa->driverQpType != 0) {
    errno = EINVAL;
    return nullptr;
  }
  EfaQpInitAttr known{};
  copyKnown(&known, *efa, static_cast<uint32_t>(std::min<size_t>(size, sizeof known)));
  return createPair(context, *attr, &known);
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp_init_attr_ex extended{};
  extended.qp_context = attr->qp_context;
  extended.send_cq = attr->send_cq;
  extended.recv_cq = attr->recv_cq;
  extended.srq = attr->srq;
  extended.cap = attr->cap;
  extended.qp_type = attr->qp_type;
  extended.sq_sig_all = attr->sq_sig_all;
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = pd;
  return createQp(pd->context, &extended);
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return &objectOf<PostedPair>(qp)->verbs;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  PostedPair& pair = *objectOf<PostedPair>(qp);
  if (const int failure = pair.nic->plannedFailure("modify_qp")) return failure;
  if ((mask & IBV_QP_STATE) && !mayFollow(qp->state, attr->qp_state)) return EINVAL;
  {
    const auto engine = pair.nic->lock();
    if (mask & IBV_QP_QKEY) pair.qp->qkey = attr->qkey;
    if (mask & IBV_QP_RNR_RETRY) pair.qp->rnrRetry = attr->rnr_retry;
  }
  if (mask & IBV_QP_STATE) {
    pair.nic->setState(*pair.qp, attr->qp_state);
    qp->state = attr->qp_state;
  }
  return 0;
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  PostedPair& pair = *objectOf<PostedPair>(qp);
  *attr = {};
  *init = {};
  const auto engine = pair.nic->lock();
  attr->qp_state = attr->cur_qp_state = pair.qp->state;
  attr->qkey = pair.qp->qkey;
  attr->port_num = 1;
  attr->cap = {pair.qp->maxSends, pair.qp->maxReceives, kMaxSendSges, kMaxReceiveSges, kMaxInline};
  init->cap = attr->cap;
  return 0;
}

int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode operation, uint32_t flags) {
  constexpr uint32_t kReturnCaps = 1, kAligned128 = 2;
  const bool ordered = nicOf(qp->context).settings().generation >= Generation::inOrder;
  const bool write = operation == IBV_WR_RDMA_WRITE || operation == IBV_WR_RDMA_WRITE_WITH_IMM;
  // Never a whole message: its packets take different ways.
  return (flags & kReturnCaps) && ordered && (write || operation == IBV_WR_RDMA_READ) ? kAligned128 : 0;
}

int ibv_destroy_qp(ibv_qp* qp) {
  const auto pair = adopt<PostedPair>(qp);
  pair->nic->destroyQueuePair(pair->qp);
  countUsers(*qp, -1);
  return 0;
}
}
