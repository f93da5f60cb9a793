// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/device.h"

#include <algorithm>
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
  if (!now.none.empty()) return Error(Code::unavailable, "opening a card", now.none);
  announce(std::move(now));
  return {};
}

Result<std::unique_ptr<Memory>> VerbsDevice::registerMemory(const MemoryDesc& desc) {
  MemoryDesc asked = desc;
  asked.strictOrder = desc.strictOrder || !port_.settings.relaxedOrder;
  return VerbsMemory::create(*library_, pd_.get(), asked);
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

std::shared_ptr<const PortAddress> VerbsDevice::announce(PortAddress address) {
  auto shared = std::make_shared<const PortAddress>(std::move(address));
  const std::lock_guard lock(mutex_);
  if (shared->none.empty()) address_ = shared;
  return shared;
}

std::string VerbsDevice::portDown() const {
  const std::lock_guard lock(mutex_);
  return portDown_;
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
    portWent(event.why);
  } else if (isOfPort(type)) {
    if (type == IBV_EVENT_PORT_ACTIVE) portWent({});
    readAddress();
  } else if (type == IBV_EVENT_CQ_ERR) {
    tell(event, async.element.cq);
  } else if (type == IBV_EVENT_SRQ_ERR) {
    tell(event, nullptr, async.element.srq);
  } else if (type == IBV_EVENT_DEVICE_FATAL) {
    tell(event);
  }
}

// A port that is down may be up again before the card's retries are over, and then nothing is lost. So its
// lanes hear that nothing passes, and go on.
void VerbsDevice::portWent(const std::string& down) {
  {
    const std::lock_guard lock(mutex_);
    if (portDown_ == down) return;
    portDown_ = down;
  }
  if (down.empty())
    WEFT_LOG(info, "port %d of %s is up again", port_.info.port, port_.card.c_str());
  else
    WEFT_LOG(warn, "%s; what is on its way waits for the card's retries", down.c_str());
  QueueEvent event;
  event.about = QueueEvent::About::port;
  event.error = down.empty() ? 0 : ENETDOWN;
  event.why = down;
  tell(event);
}

// Peers reach lanes by the address that they were told. Each lane sees for itself whether the one that it
// uses is still there. Lanes that are made from now on announce the new ones. A table that cannot be read
// says nothing about any address.
void VerbsDevice::readAddress() {
  const std::lock_guard lock(reading_);
  auto now = readSettled(*address());
  if (!now) {
    WEFT_LOG(warn, "the addresses of %s could not be read, and count as unchanged: %s",
             port_.info.name.c_str(), now.error().message().c_str());
    return;
  }
  QueueEvent event;
  event.about = QueueEvent::About::address;
  event.now = announce(now.take());
  tell(event);
}

// An address that is replaced by itself (a lease is renewed, the kernel gives it another place) is away for a
// moment, so one that is missing is looked for once more.
Result<PortAddress> VerbsDevice::readSettled(const PortAddress& before) const {
  constexpr Milliseconds kMoment{20};
  auto now = port_.readAddress(context_.get());
  const auto missing = [&](const GidEntry& told) { return !now || !whyGone(told.gid, *now).empty(); };
  if (std::any_of(before.gids.entries.begin(), before.gids.entries.end(), missing)) {
    clock_.sleep(kMoment);
    now = port_.readAddress(context_.get());
  }
  return now;
}

}  // namespace weft::verbs
