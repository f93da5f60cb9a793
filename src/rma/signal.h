// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "src/mem/gpu/driver.h"
#include "src/mem/gpu/errands.h"
#include "src/rma/window.h"

// The memory of a rank as the rank itself writes it: words to which signals are added, and puts within the
// rank. The words of host memory may be added to by several teams and by the application at a time. Those of
// a GPU are read by its kernels and streams, and written by this process alone; a lock of the process keeps
// teams apart. The team's lock guards the rest.
namespace weft::rma {

class OwnMemory {
 public:
  // Null: this process uses no GPU.
  explicit OwnMemory(std::shared_ptr<const mem::gpu::Driver> driver)
      : driver_(std::move(driver)), errands_(std::make_unique<mem::gpu::Errands>(driver_)) {}

  // Finds out which GPU the window is on. An error: none that this process knows.
  Status settle(Window& window) const;
  // Whoever sees the word's new value sees all bytes that were written before the call. Blocks for two copies
  // of the driver at most where the word is a GPU's.
  Status add(Window& window, uint64_t offset, uint64_t addend) const;
  // From and to a window of either kind; block for a copy of the driver's where it is a GPU's. `at` lies in
  // the window.
  Status read(const Window& window, const std::byte* at, void* to, size_t bytes) const;
  Status write(const Window& window, std::byte* at, const void* from, size_t bytes) const;
  const std::shared_ptr<const mem::gpu::Driver>& driver() const { return driver_; }
  mem::gpu::Errands& errands() const { return *errands_; }
  // Within this rank; the ranges may overlap where both are the host's.
  Status copy(const Window& to, uint64_t toOffset, const Window& from, uint64_t fromOffset,
              uint64_t bytes) const;

 private:
  Status addOnGpu(Window& window, uint64_t offset, uint64_t addend) const;

  std::shared_ptr<const mem::gpu::Driver> driver_;
  std::unique_ptr<mem::gpu::Errands> errands_;  // with the comms that they register memory on
};

}  // namespace weft::rma
