// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>

#include "providers/local/device.h"
#include "src/mem/gpu/copies.h"

// GPU memory that no other process can map, on its way through host memory. There are two pinned halves: the
// GPU copies into one while the other is sent, so that both work at a time. The lane owns it; used by the
// Queue's thread.
namespace weft::local {

class GpuStaging {
 public:
  // Both halves are made here, and freed by the device's errands: either may wait for kernels.
  static Result<std::unique_ptr<GpuStaging>> create(const LocalDevice& device, int gpu);
  explicit GpuStaging(std::shared_ptr<GpuFlights> flights) : flights_(std::move(flights)) {}

  // Another work begins; nothing of the present halves is used for it.
  void reset();
  // True: a copy of the byte at that address was begun.
  bool has(const void* at) const;
  // The bytes at `from`, as far as they are here; none: not yet. `left`: bytes of the work from there on.
  // `copies`: of the GPU that owns the memory; `key`: of the memory's region.
  Result<std::span<const std::byte>> bytesAt(const std::byte* from, size_t left,
                                             mem::gpu::Driver::Copies& copies, uint64_t key);

 private:
  using Flight = mem::gpu::Driver::Copies::Flight;
  struct Half {
    std::shared_ptr<mem::gpu::PinnedBytes> bytes;
    const std::byte* from = nullptr;  // the address whose bytes it holds, or will hold; null: nothing
    size_t length = 0;
    std::shared_ptr<const Flight> flight;  // null: the copy is over
    bool holds(const std::byte* at) const { return from && at >= from && at < from + length; }
  };

  // False: an earlier work's copy into that half is under way.
  Result<bool> fill(Half& half, const std::byte* from, size_t left, mem::gpu::Driver::Copies& copies,
                    uint64_t key);

  const std::shared_ptr<GpuFlights> flights_;
  std::array<Half, 2> halves_;
};

}  // namespace weft::local
