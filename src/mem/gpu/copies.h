// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <vector>

#include "src/mem/gpu/driver.h"

// Copies that the driver does by itself once they are begun. No call waits: the caller asks the Flight
// whether its copy is done. The copies of one object are done in the order in which they were begun, on a
// stream of their own. That stream waits for no other stream and for no kernel.
namespace weft::mem::gpu {

// The copies of one GPU. A single thread begins them; any thread may ask a Flight. It keeps the GPU's primary
// context until it is destroyed.
class Driver::Copies {
 public:
  static Result<std::unique_ptr<Copies>> open(std::shared_ptr<const Driver> driver, int gpu);
  Copies(std::shared_ptr<const Driver> driver, int gpu, Stream stream);
  ~Copies();
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // A copy that was begun. It may outlive its Copies: the copy goes on in any case, and the event stays
  // valid.
  class Flight {
   public:
    enum class State : uint8_t { underWay, done, failed };
    Flight(std::shared_ptr<const Driver> driver, int gpu, Event event)
        : driver_(std::move(driver)), gpu_(gpu), event_(event) {}
    ~Flight();
    Flight(const Flight&) = delete;
    Flight& operator=(const Flight&) = delete;
    State state() const;
    std::string why() const;  // of one that failed

   private:
    const std::shared_ptr<const Driver> driver_;
    const int gpu_;      // its ordinal in the driver
    const Event event_;  // recorded behind the copy, owned by the Flight
  };

  // Each begins one copy: `within` between memory of GPUs, `toGpu` from host memory, `fromGpu` into host
  // memory. Host memory must not change until the copy is done. The target of `fromGpu` has to be pinned,
  // since the driver waits when it is not.
  Result<std::shared_ptr<const Flight>> within(void* to, const void* from, size_t bytes);
  Result<std::shared_ptr<const Flight>> toGpu(void* to, const void* from, size_t bytes);
  Result<std::shared_ptr<const Flight>> fromGpu(void* to, const void* from, size_t bytes);

  int gpu() const { return gpu_; }

 private:
  // Begins what `copy` puts on the stream and records an event behind it. `what` is the operation that an
  // error names.
  template <class Copy>
  Result<std::shared_ptr<const Flight>> begin(const char* what, size_t bytes, Copy copy);

  const std::shared_ptr<const Driver> driver_;
  const int gpu_;
  const Stream stream_;  // made in the primary context, which is kept as long as the stream lives
};

// Host memory that the driver has pinned, so that a copy into it need not wait. Freed with the object.
class PinnedBytes {
 public:
  static Result<std::unique_ptr<PinnedBytes>> allocate(std::shared_ptr<const Driver> driver, int gpu,
                                                       size_t bytes);
  PinnedBytes(std::shared_ptr<const Driver> driver, int gpu, void* data, size_t size)
      : driver_(std::move(driver)), gpu_(gpu), data_(static_cast<std::byte*>(data)), size_(size) {}
  ~PinnedBytes();
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  const std::shared_ptr<const Driver> driver_;
  const int gpu_;
  std::byte* const data_;
  const size_t size_;
};

}  // namespace weft::mem::gpu
