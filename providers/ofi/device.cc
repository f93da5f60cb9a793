// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/device.h"

#include <mutex>
#include <set>

#include "providers/ofi/descriptors.h"
#include "providers/ofi/queue.h"
#include "src/base/pages.h"

// Opening a card, and the memory of cards that are lost.
namespace weft::ofi {

namespace {

// Cards that ended all their work, by name. On such an EFA card libfabric 1.17 frees twice what it cannot
// open, so none is opened again in this process, also by a Transport that is made later.
class LostCards {
 public:
  void add(const std::string& name) {
    const std::lock_guard lock(mutex_);
    names_.insert(name);
  }
  bool has(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return names_.contains(name);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

LostCards& lostCards() {
  static LostCards cards;
  return cards;
}

}  // namespace

OfiDevice::OfiDevice(std::shared_ptr<const Library> library, const Traits& traits, const Nic& nic,
                     const Config& config, const Clock& clock)
    : library_(std::move(library)),
      traits_(traits),
      nic_(nic),
      config_(config),
      clock_(clock),
      registry_((nic.fabricInfo->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0) {}

Result<std::shared_ptr<Device>> OfiDevice::open(std::shared_ptr<const Library> library, const Traits& traits,
                                                const Nic& nic, const Config& config, const Clock& clock) {
  auto device = std::make_shared<OfiDevice>(std::move(library), traits, nic, config, clock);
  Status started = device->start();
  if (!started) {
    // A card that does not answer is lost. Its device exists all the same, so that a job goes on over its
    // other cards.
    if (traits.software || started.error().code() != Code::unavailable) return started.takeError();
    device->markLost();
  }
  return std::shared_ptr<Device>(device);
}

// A lost card has nothing to start: a registration on it succeeds and is empty, and queues are refused.
Status OfiDevice::start() {
  if (lostCards().has(info().name)) {
    lost_ = true;
    return {};
  }
  const ClosedOnExec opened;
  if (!traits_.software) {
    TRY(domain_, Domain::open(library_, fabricInfo(), false));
    TRY(registry_.attach(domain_.get()));
  }
  TRY(helloPage_, mapPages(kHelloBytes));
  MemoryDesc desc;
  desc.address = helloPage_.get();
  desc.length = kHelloBytes;
  desc.ours = true;
  TRY(const Registry::Entry entry, registry_.add(desc));
  helloMemory_ = std::make_unique<OfiMemory>(registry_, entry);
  return {};
}

// A job goes on over its other cards and registers memory on all of them, so a registration on a lost card is
// empty. A card that died a moment ago may be noticed here first; its lanes will notice too. If it is the
// only card, they fail with it.
Result<std::unique_ptr<Memory>> OfiDevice::registerMemory(const MemoryDesc& desc) {
  if (!lost_.load(std::memory_order_relaxed)) {
    auto memory = OfiMemory::create(registry_, info(), desc);
    if (memory || !domain_ || !domain_->cardGone()) return memory;
  }
  return std::unique_ptr<Memory>(std::make_unique<OfiMemory>(registry_, Registry::Entry{}));
}

void OfiDevice::markLost() {
  lost_.store(true, std::memory_order_relaxed);
  lostCards().add(info().name);
}

Status OfiDevice::usable() const {
  if (!lost_.load(std::memory_order_relaxed)) return {};
  return Error(
      Code::unavailable, "using a card",
      info().name +
          " ended all its work earlier; see the kernel's log, and start the process again to use it");
}

Result<std::unique_ptr<Queue>> OfiDevice::openQueue(const QueueDepths& wanted) {
  TRY(usable());
  return OfiQueue::create(*this, wanted);
}

}  // namespace weft::ofi
