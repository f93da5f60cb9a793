// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "src/core/net.h"
#include "src/mem/gpu/copies.h"
#include "src/mem/gpu/errands.h"

// Host memory through which one stream of messages goes to or from the memory of a GPU that the fabric does
// not reach: a few slots that the driver has pinned, in turn. The messages of a stream end in the order in
// which they were begun, so the slots are a ring. The stream owns it (sender.h, receiver.h), and a stream
// never waits for the slots of another one; the team's lock guards it.
namespace weft::rma {

class Bounce {
 public:
  static Result<std::unique_ptr<Bounce>> create(std::shared_ptr<const mem::gpu::Driver> driver, int gpu,
                                                core::Comm& comm);
  // The same on the thread of errands, since the driver may wait for kernels, and those for the caller.
  // `over`: of an error or a bounce, which the errand wrote before.
  struct Making {
    std::optional<Result<std::unique_ptr<Bounce>>> made;
    std::atomic<bool> over{false};
  };
  static std::shared_ptr<Making> begin(mem::gpu::Errands& errands,
                                       std::shared_ptr<const mem::gpu::Driver> driver, int gpu,
                                       core::Comm& comm);
  Bounce(std::unique_ptr<mem::gpu::PinnedBytes> bytes, core::Comm& comm)
      : bytes_(std::move(bytes)), comm_(comm) {}
  ~Bounce();  // before the comm's end
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;

  // The slot of the next message; null: all are taken. It stays the same until take().
  std::byte* next() const;
  void take() { taken_++; }
  void giveBack() { given_++; }  // the oldest one that is taken
  core::MemoryHandle* memory() const { return memory_; }

 private:
  const std::unique_ptr<mem::gpu::PinnedBytes> bytes_;
  core::Comm& comm_;
  core::MemoryHandle* memory_ = nullptr;
  uint64_t taken_ = 0, given_ = 0;  // slots ever
};

// A bounce that is made at need.
class LazyBounce {
 public:
  // Null: not yet, call again.
  Result<Bounce*> get(mem::gpu::Errands& errands, const std::shared_ptr<const mem::gpu::Driver>& driver,
                      int gpu, core::Comm& comm);
  Bounce* operator->() const { return bounce_.get(); }  // of one that was got

 private:
  std::shared_ptr<Bounce::Making> making_;
  std::unique_ptr<Bounce> bounce_;
};

}  // namespace weft::rma
