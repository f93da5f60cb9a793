// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/gpu_staging.h"

#include <algorithm>

// The two halves through which a GPU's bytes go into the ring.
namespace weft::local {

namespace {

// Bytes of a half.
constexpr size_t kHalf = 256 << 10;

}  // namespace

void GpuStaging::reset() {
  for (Half& half : halves_) half.from = nullptr;
}

bool GpuStaging::has(const void* at) const {
  return std::any_of(halves_.begin(), halves_.end(),
                     [at](const Half& half) { return half.holds(static_cast<const std::byte*>(at)); });
}

Result<std::unique_ptr<GpuStaging>> GpuStaging::create(const LocalDevice& device, int gpu) {
  auto made = std::make_unique<GpuStaging>(device.flights());
  for (Half& half : made->halves_) {
    TRY(auto bytes, mem::gpu::PinnedBytes::allocate(device.driver(), gpu, kHalf));
    // A copy that outlives the lane keeps them, and then it is whoever sees its end that lets them go.
    half.bytes = {bytes.release(), [errands = device.errands()](mem::gpu::PinnedBytes* gone) {
                    errands->destroy(std::unique_ptr<mem::gpu::PinnedBytes>(gone));
                  }};
  }
  return made;
}

// A half whose copy of an earlier work was never waited for may still be written by the GPU.
Result<bool> GpuStaging::fill(Half& half, const std::byte* from, size_t left,
                              mem::gpu::Driver::Copies& copies, uint64_t key) {
  if (half.flight && half.flight->state() == Flight::State::underWay) return false;
  if (half.flight) flights_->over(half.flight);
  half.flight = nullptr;
  const size_t length = std::min(left, kHalf);
  TRY(half.flight, copies.fromGpu(half.bytes->data(), from, length));
  flights_->add(key, half.flight, half.bytes);
  half.from = from;
  half.length = length;
  return true;
}

Result<std::span<const std::byte>> GpuStaging::bytesAt(const std::byte* from, size_t left,
                                                       mem::gpu::Driver::Copies& copies, uint64_t key) {
  size_t at = 0;
  while (at < halves_.size() && !halves_[at].holds(from)) at++;
  if (at == halves_.size()) {
    at = 0;
    TRY(const bool filled, fill(halves_[at], from, left, copies, key));
    if (!filled) return std::span<const std::byte>();
  }
  Half& half = halves_[at];
  Half& other = halves_[1 - at];
  // Begins the copy of the next bytes of the work in advance.
  const std::byte* next = half.from + half.length;
  const size_t rest = left - static_cast<size_t>(next - from);
  if (rest > 0 && other.from != next) {
    TRY(fill(other, next, rest, copies, key));  // or with a later call
  }
  if (half.flight) {
    const Flight::State state = half.flight->state();
    if (state == Flight::State::underWay) return std::span<const std::byte>();
    if (state == Flight::State::failed) return Error(Code::system, "copying from a GPU", half.flight->why());
    flights_->over(half.flight);
    half.flight = nullptr;
  }
  return std::span<const std::byte>(half.bytes->data() + (from - half.from),
                                    half.length - static_cast<size_t>(from - half.from));
}

}  // namespace weft::local
