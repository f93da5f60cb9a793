// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Completion queues and their events. Only the extended interface: the EFA provider uses no other.
#include <cerrno>
#include <cstring>
#include <utility>

#include <infiniband/verbs.h>

#include "tests/softefa/efa_abi.h"
#include "tests/softefa/verbs_objects.h"

namespace softefa {

namespace {

PolledQueue& queueOf(ibv_cq_ex* cq) {
  return *objectOf<PolledQueue>(cq);
}
const Completion& currentOf(ibv_cq_ex* cq) {
  return queueOf(cq).current;
}

PolledQueue& queueOf(EfaCq* efa) {
  static_assert(std::is_standard_layout_v<ibv_cq_ex>);
  return *reinterpret_cast<PolledQueue*>(reinterpret_cast<char*>(efa) - sizeof(ibv_cq_ex));
}

int nextPoll(ibv_cq_ex* cq) {
  PolledQueue& queue = queueOf(cq);
  const int found = queue.queue->take(queue.current);
  cq->wr_id = queue.current.wrId;
  cq->status = verbsStatus(queue.current.status);
  return found;
}

int startPoll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) return EINVAL;
  PolledQueue& queue = queueOf(cq);
  queue.nic->poll();
  queue.polling.lock();
  const int found = nextPoll(cq);
  if (found != 0) queue.polling.unlock();  // there is no end_poll then
  return found;
}

void endPoll(ibv_cq_ex* cq) {
  queueOf(cq).polling.unlock();
}

ibv_wc_opcode readOpcode(ibv_cq_ex* cq) {
  return currentOf(cq).opcode;
}
uint32_t readVendorErr(ibv_cq_ex* cq) {
  return static_cast<uint32_t>(currentOf(cq).status);
}
uint32_t readByteLen(ibv_cq_ex* cq) {
  return currentOf(cq).byteLength;
}
__be32 readImm(ibv_cq_ex* cq) {
  return currentOf(cq).imm;
}
uint32_t readQpNum(ibv_cq_ex* cq) {
  return currentOf(cq).qpn;
}
uint32_t readSrcQp(ibv_cq_ex* cq) {
  return currentOf(cq).sourceQpn;
}
unsigned readFlags(ibv_cq_ex* cq) {
  return currentOf(cq).flags;
}
uint32_t readSlid(ibv_cq_ex* cq) {
  return currentOf(cq).sourceHandle;
}
uint8_t readSl(ibv_cq_ex*) {
  return 0;
}
uint8_t readPathBits(ibv_cq_ex*) {
  return 0;
}

// The sender's GID is told only of senders whose number says nothing.
int readSgid(EfaCq* efa, ibv_gid* sgid) {
  const Completion& current = queueOf(efa).current;
  if (current.sourceHandle != kNoAddressHandle || current.ofSend) return -ENOENT;
  std::memcpy(sgid->raw, current.sourceGid.bytes.data(), sizeof sgid->raw);
  return 0;
}

bool isUnsolicited(EfaCq* efa) {
  return queueOf(efa).current.unsolicited;
}

void setPollCalls(ibv_cq_ex& verbs) {
  verbs.start_poll = startPoll;
  verbs.next_poll = nextPoll;
  verbs.end_poll = endPoll;
  verbs.read_opcode = readOpcode;
  verbs.read_vendor_err = readVendorErr;
  verbs.read_byte_len = readByteLen;
  verbs.read_imm_data = readImm;
  verbs.read_qp_num = readQpNum;
  verbs.read_src_qp = readSrcQp;
  verbs.read_wc_flags = readFlags;
  verbs.read_slid = readSlid;
  verbs.read_sl = readSl;
  verbs.read_dlid_path_bits = readPathBits;
}

}  // namespace

ibv_cq_ex* createCq(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  Nic& nic = nicOf(context);
  errno = nic.plannedFailure("create_cq");
  if (errno == 0 && (attr->cqe == 0 || attr->cqe > 1U << 16)) errno = EINVAL;
  if (errno != 0) return nullptr;
  auto queue = std::make_unique<PolledQueue>();
  EventChannel* const channel = attr->channel ? EventChannel::of(attr->channel) : nullptr;
  queue->queue = std::make_unique<CompletionQueue>(attr->cqe, channel, nic.settings().strict,
                                                   nic.settings().batch, nic.counters());
  queue->nic = &nic;
  queue->verbs.context = context;
  queue->verbs.channel = attr->channel;
  queue->verbs.cq_context = attr->cq_context;
  queue->verbs.cqe = static_cast<int>(queue->queue->depth());
  setPollCalls(queue->verbs);
  queue->efa.readSgid = readSgid;
  queue->efa.isUnsolicited = isUnsolicited;
  queue->queue->setOwner(ibv_cq_ex_to_cq(&queue->verbs));
  return &release(std::move(queue))->verbs;
}

int requestNotify(ibv_cq* cq, int) {
  objectOf<PolledQueue>(cq)->queue->arm();
  return 0;
}

}  // namespace softefa

using namespace softefa;

extern "C" {

ibv_cq_ex* softefa_create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  return createCq(context, attr);
}

EfaCq* softefa_efa_cq(ibv_cq_ex* cq) {
  return &objectOf<PolledQueue>(cq)->efa;
}

int ibv_destroy_cq(ibv_cq* cq) {
  if (objectOf<PolledQueue>(cq)->users != 0) return EBUSY;
  const auto queue = adopt<PolledQueue>(cq);
  if (queue->queue->channel()) queue->queue->channel()->forget(cq);
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  auto channel = std::make_unique<EventChannel>(context);
  return channel->valid() ? release(std::move(channel))->verbs() : nullptr;
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  adopt<EventChannel>(channel);
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cqContext) {
  ibv_cq* const found = EventChannel::of(channel)->wait();
  if (!found) return -1;
  *cq = found;
  *cqContext = found->cq_context;
  return 0;
}

void ibv_ack_cq_events(ibv_cq*, unsigned) {}  // destroying takes unread events along, so nothing waits for it
}
