// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>

#include "providers/local/gpu_flights.h"
#include "src/mem/gpu/copies.h"

// GPU memory that no other process can map, on its way through host memory: two pinned halves, one of which
// the GPU copies into while the other one is sent, so that both engines work. Owned by its lane; used by the
// Queue's thread.
namespace weft::local {

class GpuStaging {
 public:
  GpuStaging(std::shared_ptr<const mem::gpu::Driver> driver, std::shared_ptr<GpuFlights> flights)
      : driver_(std::move(driver)), flights_(std::move(flights)) {}

  // Another work begins.
  void reset();
  // True: a copy of the byte there was begun.
  bool has(const void* at) const;
  // The bytes at `from` as far as they are here; none: not yet. `left`: of the work, from there on. `copies`:
  // of the GPU whose memory it is, `key` of the region that it belongs to.
  Result<std::span<const std::byte>> bytesAt(const std::byte* from, size_t left,
                                             mem::gpu::Driver::Copies& copies, uint64_t key);

 private:
  using Flight = mem::gpu::Driver::Copies::Flight;
  struct Half {
    std::shared_ptr<mem::gpu::PinnedBytes> bytes;
    const std::byte* from = nullptr;  // what it holds, or is to hold; null: nothing
    size_t length = 0;
    std::shared_ptr<const Flight> flight;  // null: it is there
    bool holds(const std::byte* at) const { return from && at >= from && at < from + length; }
  };

  Status fill(Half& half, const std::byte* from, size_t left, mem::gpu::Driver::Copies& copies, uint64_t key);

  const std::shared_ptr<const mem::gpu::Driver> driver_;
  const std::shared_ptr<GpuFlights> flights_;
  std::array<Half, 2> halves_;
};

}  // namespace weft::local
