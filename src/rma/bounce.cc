// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/rma/bounce.h"

#include <utility>

#include "src/rma/wire.h"

// The slots, and their place on a comm.
namespace weft::rma {

namespace {

constexpr size_t kSlots = 4;

}  // namespace

Result<std::unique_ptr<Bounce>> Bounce::create(std::shared_ptr<const mem::gpu::Driver> driver, int gpu,
                                               core::Comm& comm) {
  TRY(auto bytes, mem::gpu::PinnedBytes::allocate(std::move(driver), gpu, kSlots * kStagedPieceBytes));
  auto made = std::make_unique<Bounce>(std::move(bytes), comm);
  MemoryDesc desc;
  desc.address = made->bytes_->data();
  desc.length = made->bytes_->size();
  TRY(made->memory_, comm.registerMemory(desc));
  return made;
}

std::shared_ptr<Bounce::Making> Bounce::begin(mem::gpu::Errands& errands,
                                              std::shared_ptr<const mem::gpu::Driver> driver, int gpu,
                                              core::Comm& comm) {
  auto making = std::make_shared<Making>();
  errands.ask([making, driver = std::move(driver), gpu, &comm]() mutable {
    making->made.emplace(create(std::move(driver), gpu, comm));
    making->over.store(true, std::memory_order_release);
  });
  return making;
}

Result<Bounce*> LazyBounce::get(mem::gpu::Errands& errands,
                                const std::shared_ptr<const mem::gpu::Driver>& driver, int gpu,
                                core::Comm& comm) {
  if (bounce_) return bounce_.get();
  if (!making_) making_ = Bounce::begin(errands, driver, gpu, comm);
  if (!making_->over.load(std::memory_order_acquire)) return static_cast<Bounce*>(nullptr);
  const auto making = std::exchange(making_, nullptr);
  if (!*making->made) return making->made->takeError();
  bounce_ = making->made->take();
  return bounce_.get();
}

Bounce::~Bounce() {
  if (memory_) (void)comm_.deregisterMemory(memory_);
}

std::byte* Bounce::next() const {
  if (taken_ - given_ == kSlots) return nullptr;
  return bytes_->data() + taken_ % kSlots * kStagedPieceBytes;
}

}  // namespace weft::rma
