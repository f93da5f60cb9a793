// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/device.h"

#include <algorithm>
#include <cerrno>

#include "providers/verbs/memory.h"
#include "providers/verbs/queue.h"
#include "providers/verbs/words.h"
#include "src/base/log.h"

namespace weft::verbs {

Result<std::shared_ptr<Device>> VerbsDevice::open(std::shared_ptr<const Library> library, const Port& port) {
  auto device = std::make_shared<VerbsDevice>(std::move(library), port);
  TRY(device->start());
  return std::shared_ptr<Device>(device);
}

Status VerbsDevice::start() {
  TRY(context_, openCard(*library_, port_.device));
  errno = 0;
  ibv_pd* raw = library_->allocPd(context_.get());
  if (!raw) return verbsError("opening a protection domain", port_.info.name, errno ? errno : ENOMEM);
  pd_ = Handle<ibv_pd>(raw, library_->deallocPd);
  TRY(watcher_.start(*library_, context_.get(), [this](const ibv_async_event& event) { happened(event); }));
  WEFT_LOG(info, "verbs %s: %s; path MTU %d, timeout 2^%d, %d retries", port_.info.name.c_str(),
           port_.gids.why.c_str(), port_.info.mtu, port_.settings.timeout, port_.settings.retryCount);
  return {};
}

Result<std::unique_ptr<Memory>> VerbsDevice::registerMemory(const MemoryDesc& desc) {
  return VerbsMemory::create(*library_, pd_.get(), desc);
}

Result<std::unique_ptr<Queue>> VerbsDevice::openQueue(const QueueDepths& wanted) {
  return VerbsQueue::create(*this, wanted);
}

void VerbsDevice::listen(const Listener& listener) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back(listener);
}

void VerbsDevice::forget(const Mailbox* mailbox) {
  const std::lock_guard lock(mutex_);
  std::erase_if(listeners_, [&](const Listener& listener) { return listener.mailbox.get() == mailbox; });
}

// On the Watcher's thread. What is not an error of ours or of this port is of no interest.
void VerbsDevice::happened(const ibv_async_event& event) {
  const auto type = event.event_type;
  const bool ofPort = type == IBV_EVENT_PORT_ERR;
  if (ofPort && event.element.port_num != port_.info.port) return;
  const bool ofPair =
      type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR;
  const bool ofQueue = type == IBV_EVENT_CQ_ERR || type == IBV_EVENT_SRQ_ERR;
  if (!ofPort && !ofPair && !ofQueue && type != IBV_EVENT_DEVICE_FATAL) return;
  Letter letter;
  letter.about = ofPair ? Letter::About::lane : Letter::About::queue;
  letter.queuePair = ofPair ? event.element.qp->qp_num : 0;
  letter.error = ofPort ? ENETDOWN : EIO;
  letter.why = eventWords(type, port_.card, port_.info.port);
  const std::lock_guard lock(mutex_);
  for (const Listener& listener : listeners_) {
    if (type == IBV_EVENT_CQ_ERR && event.element.cq != listener.cq) continue;
    if (type == IBV_EVENT_SRQ_ERR && event.element.srq != listener.srq) continue;
    listener.mailbox->post(letter);
  }
}

}  // namespace weft::verbs
