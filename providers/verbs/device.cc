// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/device.h"

#include <cerrno>

#include "providers/verbs/memory.h"
#include "providers/verbs/queue.h"
#include "providers/verbs/words.h"
#include "src/base/log.h"

// A port: opened, registered with, and told of the card's events.
namespace weft::verbs {

Result<std::shared_ptr<Device>> VerbsDevice::open(std::shared_ptr<const Library> library, const Port& port,
                                                  const Clock& clock) {
  auto device = std::make_shared<VerbsDevice>(std::move(library), port, clock);
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
  const std::lock_guard lock(reading_);
  TRY(auto now, port_.readAddress(context_.get()));  // with all changes before the first event came
  WEFT_LOG(info, "verbs %s: %s; path MTU %d, timeout 2^%d, %d retries", port_.info.name.c_str(),
           now.gids.why.c_str(), 128 << now.mtu, port_.settings.timeout, port_.settings.retryCount);
  announce(std::move(now));
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

void VerbsDevice::announce(PortAddress address) {
  auto shared = std::make_shared<const PortAddress>(std::move(address));
  const std::lock_guard lock(mutex_);
  address_ = std::move(shared);
}

std::shared_ptr<const PortAddress> VerbsDevice::address() const {
  const std::lock_guard lock(mutex_);
  return address_;
}

void VerbsDevice::tell(const QueueEvent& event, const ibv_cq* cq, const ibv_srq* srq) {
  const std::lock_guard lock(mutex_);
  for (const Listener& listener : listeners_) {
    if (cq && cq != listener.cq) continue;
    if (srq && srq != listener.srq) continue;
    listener.mailbox->post(event);
  }
}

namespace {

bool isOfPort(ibv_event_type type) {
  return type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE || type == IBV_EVENT_LID_CHANGE ||
         type == IBV_EVENT_GID_CHANGE || type == IBV_EVENT_CLIENT_REREGISTER;
}

bool isOfPair(ibv_event_type type) {
  return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR;
}

}  // namespace

// On the Watcher's thread. Events of other ports, and those of no effect here, are ignored.
void VerbsDevice::happened(const ibv_async_event& async) {
  const auto type = async.event_type;
  if (isOfPort(type) && async.element.port_num != port_.info.port) return;
  QueueEvent event;
  event.about = QueueEvent::About::queue;
  event.error = EIO;
  event.why = eventWords(type, port_.card, port_.info.port);
  if (isOfPair(type)) {
    event.about = QueueEvent::About::lane;
    event.queuePair = async.element.qp->qp_num;
    tell(event, async.element.qp->send_cq);  // another Queue may have a newer pair of that number
  } else if (type == IBV_EVENT_QP_LAST_WQE_REACHED) {
    event.about = QueueEvent::About::last;
    event.queuePair = async.element.qp->qp_num;
    tell(event, async.element.qp->send_cq);
  } else if (type == IBV_EVENT_PORT_ERR) {
    event.error = ENETDOWN;
    tell(event);
  } else if (isOfPort(type)) {
    readAddress();
  } else if (type == IBV_EVENT_CQ_ERR) {
    tell(event, async.element.cq);
  } else if (type == IBV_EVENT_SRQ_ERR) {
    tell(event, nullptr, async.element.srq);
  } else if (type == IBV_EVENT_DEVICE_FATAL) {
    tell(event);
  }
}

// Peers reach lanes by the address that they were told. Where that address is gone, nothing comes any more,
// and the card's retries would take seconds to say so; hence the event. Lanes that are made from now on
// announce the new address.
void VerbsDevice::readAddress() {
  const std::lock_guard lock(reading_);
  const auto before = address();
  auto now = port_.readAddress(context_.get());
  const std::string gone = now ? whatIsGone(*before, *now) : now.error().detail();
  if (now) announce(now.take());
  if (gone.empty()) return;
  QueueEvent event;
  event.about = QueueEvent::About::queue;
  event.error = EADDRNOTAVAIL;
  event.why = format("port %d of %s: %s", port_.info.port, port_.card.c_str(), gone.c_str());
  tell(event);
}

}  // namespace weft::verbs
