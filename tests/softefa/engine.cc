// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/engine.h"

#include <utility>

#include "tests/softefa/strict.h"
#include "tests/softefa/sysfs.h"

namespace softefa {

std::string Engine::fabric(const Settings& settings) {
  return fabricDirectory(settings);
}

QueuePair* Engine::find(uint32_t qpn) const {
  const uint32_t place = qpn % kQueuePairs;
  if (place >= queuePairs.size() || !queuePairs[place] || queuePairs[place]->qpn != qpn) return nullptr;
  return queuePairs[place].get();
}

PacketHeader Engine::headerFrom(const QueuePair& qp, PacketKind kind) const {
  PacketHeader header;
  header.kind = kind;
  header.from = identity.gid;
  header.sender = opening;
  header.fromQpn = qp.qpn;
  return header;
}

void Engine::violated(StrictCheck check, const std::string& what) const {
  violation(settings.strict, check, "%s of host %s: %s", identity.name.c_str(), settings.host.c_str(),
            what.c_str());
}

void completeSend(QueuePair& qp, const WorkRequest& work, Status status) {
  Completion completion;
  completion.wrId = work.wrId;
  completion.status = status;
  // Reads are told as sends: the hardware's completion does not tell the two apart.
  completion.opcode = work.operation == Operation::write ? IBV_WC_RDMA_WRITE : IBV_WC_SEND;
  completion.qpn = qp.qpn;
  completion.life = qp.life;
  qp.sendCq->push(std::move(completion));
}

}  // namespace softefa
