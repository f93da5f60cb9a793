// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Posting work: the extended send interface between wr_start and wr_complete, and receives.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include <infiniband/verbs.h>

#include "tests/softefa/verbs_objects.h"

namespace softefa {

namespace {

PostedPair& pairOf(ibv_qp_ex* qp) {
  return *objectOf<PostedPair>(qp);
}

WorkRequest& begin(ibv_qp_ex* qp, Operation operation) {
  WorkRequest& work = pairOf(qp).work.emplace_back();
  work.wrId = qp->wr_id;
  work.operation = operation;
  return work;
}

// The work that is being described; nullptr, with the error kept for wr_complete, when none was begun.
WorkRequest* currentOf(ibv_qp_ex* qp) {
  PostedPair& pair = pairOf(qp);
  if (!pair.work.empty()) return &pair.work.back();
  pair.error = EINVAL;
  return nullptr;
}

void wrStart(ibv_qp_ex* qp) {
  PostedPair& pair = pairOf(qp);
  pair.posting.lock();
  pair.work.clear();
  pair.error = 0;
}

int wrComplete(ibv_qp_ex* qp) {
  PostedPair& pair = pairOf(qp);
  const int result = pair.error ? pair.error : pair.nic->post(*pair.qp, pair.work);
  pair.posting.unlock();
  return result;
}

void wrAbort(ibv_qp_ex* qp) {
  pairOf(qp).posting.unlock();
}

void wrSend(ibv_qp_ex* qp) {
  begin(qp, Operation::send);
}

void wrSendImm(ibv_qp_ex* qp, __be32 imm) {
  WorkRequest& work = begin(qp, Operation::send);
  work.hasImm = true;
  work.imm = imm;
}

void setRemote(WorkRequest& work, uint32_t rkey, uint64_t address) {
  work.rkey = rkey;
  work.remoteAddress = address;
}

void wrRead(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  setRemote(begin(qp, Operation::read), rkey, address);
}

void wrWrite(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  setRemote(begin(qp, Operation::write), rkey, address);
}

void wrWriteImm(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, __be32 imm) {
  WorkRequest& work = begin(qp, Operation::write);
  setRemote(work, rkey, address);
  work.hasImm = true;
  work.imm = imm;
}

void wrSetSgeList(ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
  WorkRequest* const work = currentOf(qp);
  const uint64_t most = work && work->operation == Operation::read ? 1 : kMaxSendSges;
  if (!work || count > most) {
    pairOf(qp).error = EINVAL;
    return;
  }
  work->sgeCount = static_cast<uint32_t>(count);
  std::copy_n(list, count, work->sges.begin());
  work->length = 0;
  for (size_t i = 0; i < count; ++i) work->length += list[i].length;
}

void wrSetSge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
  const ibv_sge sge{address, length, lkey};
  wrSetSgeList(qp, 1, &sge);
}

void wrSetInlineList(ibv_qp_ex* qp, size_t count, const ibv_data_buf* list) {
  WorkRequest* const work = currentOf(qp);
  if (!work) return;
  work->isInline = true;
  work->length = 0;
  for (size_t i = 0; i < count; ++i) {
    if (list[i].length > kMaxInline - work->length) {
      pairOf(qp).error = EINVAL;
      return;
    }
    if (list[i].length > 0) std::memcpy(work->inlineData.data() + work->length, list[i].addr, list[i].length);
    work->length += list[i].length;
  }
}

void wrSetInline(ibv_qp_ex* qp, void* data, size_t length) {
  const ibv_data_buf buffer{data, length};
  wrSetInlineList(qp, 1, &buffer);
}

void addInline(ibv_qp_ex* qp, const ibv_send_wr& work) {
  std::vector<ibv_data_buf> buffers;
  for (int i = 0; i < work.num_sge; ++i) {
    buffers.push_back({reinterpret_cast<void*>(work.sg_list[i].addr), work.sg_list[i].length});
  }
  wrSetInlineList(qp, buffers.size(), buffers.data());
}

// A handle that was destroyed must not be looked into; the NIC refuses the work.
void wrSetUdAddr(ibv_qp_ex* qp, ibv_ah* ah, uint32_t qpn, uint32_t qkey) {
  WorkRequest* const work = currentOf(qp);
  if (!work) return;
  work->remoteQpn = qpn;
  work->remoteQkey = qkey;
  OpenedDevice& opened = *openedOf(qp->qp_base.context);
  const std::lock_guard lock(opened.handlesMutex);
  work->handleKnown = opened.handles.contains(ah);
  if (!work->handleKnown) return;
  work->to = objectOf<AddressHandle>(ah)->gid;
  work->handle = objectOf<AddressHandle>(ah)->number;
}

}  // namespace

void setWorkCalls(ibv_qp_ex& verbs, uint64_t operations) {
  verbs.wr_start = wrStart;
  verbs.wr_complete = wrComplete;
  verbs.wr_abort = wrAbort;
  verbs.wr_set_sge = wrSetSge;
  verbs.wr_set_sge_list = wrSetSgeList;
  verbs.wr_set_inline_data = wrSetInline;
  verbs.wr_set_inline_data_list = wrSetInlineList;
  verbs.wr_set_ud_addr = wrSetUdAddr;
  if (operations & IBV_QP_EX_WITH_SEND) verbs.wr_send = wrSend;
  if (operations & IBV_QP_EX_WITH_SEND_WITH_IMM) verbs.wr_send_imm = wrSendImm;
  if (operations & IBV_QP_EX_WITH_RDMA_READ) verbs.wr_rdma_read = wrRead;
  if (operations & IBV_QP_EX_WITH_RDMA_WRITE) verbs.wr_rdma_write = wrWrite;
  if (operations & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) verbs.wr_rdma_write_imm = wrWriteImm;
}

// The older interface knows only sends on an EFA.
int postSends(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) {
  ibv_qp_ex* const extended = ibv_qp_to_qp_ex(qp);
  wrStart(extended);
  *bad = list;
  for (; list; list = list->next) {
    extended->wr_id = list->wr_id;
    if (list->opcode == IBV_WR_SEND_WITH_IMM) {
      wrSendImm(extended, list->imm_data);
    } else if (list->opcode == IBV_WR_SEND) {
      wrSend(extended);
    } else {
      wrAbort(extended);
      return EINVAL;
    }
    wrSetUdAddr(extended, list->wr.ud.ah, list->wr.ud.remote_qpn, list->wr.ud.remote_qkey);
    if (list->send_flags & IBV_SEND_INLINE) {
      addInline(extended, *list);
    } else {
      wrSetSgeList(extended, static_cast<size_t>(list->num_sge), list->sg_list);
    }
  }
  return wrComplete(extended);
}

int postReceives(ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad) {
  PostedPair& pair = *objectOf<PostedPair>(qp);
  for (; list; list = list->next) {
    ReceiveWork work;
    work.wrId = list->wr_id;
    work.sgeCount = static_cast<uint32_t>(list->num_sge);
    int result = work.sgeCount > kMaxReceiveSges ? EINVAL : 0;
    if (result == 0) {
      std::copy_n(list->sg_list, work.sgeCount, work.sges.begin());
      result = pair.nic->postReceive(*pair.qp, work);
    }
    if (result == 0) continue;
    *bad = list;
    return result;
  }
  return 0;
}

}  // namespace softefa
