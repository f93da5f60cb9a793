// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>

#include "src/base/log.h"
#include "src/mem/region_table.h"

// The half of RegionCache that handles GPU memory.
namespace weft::mem {

namespace {

using gpu::Pointer;

constexpr const char* kOperation = "registering GPU memory";

// The error for a range that cannot be registered as GPU memory.
Error refused(const MemoryDesc& desc, const std::string& why) {
  return Error(Code::invalidArgument, kOperation,
               format("%zu bytes at %p: %s", desc.length, desc.address, why.c_str()));
}

// Why memory of this kind is not a GPU's; null: it is.
const char* wrongKind(Pointer::Kind kind) {
  switch (kind) {
    case Pointer::Kind::host:
      return "it is host memory that CUDA pinned; register it as host memory (type 1)";
    case Pointer::Kind::managed:
      return "it is managed memory, which moves between host and GPU; copy it to memory of cudaMalloc";
    case Pointer::Kind::unknown:
      return "the CUDA driver knows no such memory: it was freed, or is plain host memory";
    case Pointer::Kind::device:
      break;
  }
  return nullptr;
}

}  // namespace

// A range and its allocation, as the driver knows them.
struct RegionCache::GpuRange {
  // The driver's number of the allocation; for several segments, a hash of their numbers in order. 0: the
  // driver has no number for it, or for one of them.
  uint64_t buffer = 0;
  int gpu = -1;
  uintptr_t first = 0;  // of the range, whole pages
  uintptr_t end = 0;
  uintptr_t wholeFirst = 0;  // of the allocation; equal to the range's where it may not be widened
  uintptr_t wholeEnd = 0;
  bool oneSegment = true;
};

// Memory that NCCL calls the host's must not be a GPU's. The driver does not know plain memory, so an unknown
// address passes.
Status RegionCache::refuseGpu(const MemoryDesc& desc) const {
  if (!options_.driver || options_.driver->lookUp(desc.address).kind != Pointer::Kind::device) return {};
  return Error(
      Code::invalidArgument, "registering memory",
      format("%zu bytes at %p are a GPU's; register them as such (type 2)", desc.length, desc.address));
}

// NCCL widens users' buffers to whole pages, so an allocation may begin or end within the first or last page.
// The loop walks over the segments of the range; a range of several segments is not widened to its
// allocation.
Result<RegionCache::GpuRange> RegionCache::findOut(const MemoryDesc& desc) const {
  const auto address = reinterpret_cast<uintptr_t>(desc.address);
  const uintptr_t end = address + desc.length;
  Pointer at = options_.driver->lookUp(desc.address);
  if (const char* why = wrongKind(at.kind)) return refused(desc, why);
  GpuRange out;
  out.buffer = at.buffer;
  out.gpu = at.gpu;
  out.first = pageOf(address);
  out.end = pageBehind(end);
  out.wholeFirst = std::min(pageOf(at.begin), out.first);
  out.wholeEnd = std::max(pageBehind(at.begin + at.length), out.end);
  bool numbered = at.buffer != 0;
  while (pageBehind(at.begin + at.length) < end) {
    const uintptr_t next = at.begin + at.length;
    at = options_.driver->lookUp(reinterpret_cast<const void*>(next));
    if (at.kind != Pointer::Kind::device || at.gpu != out.gpu || at.begin + at.length <= next) {
      return refused(desc, format("the memory of GPU %d ends after %zu of them; pass what was allocated",
                                  out.gpu, static_cast<size_t>(next - address)));
    }
    out.oneSegment = false;
    numbered = numbered && at.buffer != 0;
    out.buffer = (out.buffer ^ at.buffer * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    out.wholeFirst = out.first;
    out.wholeEnd = out.end;
  }
  if (!numbered) out.buffer = 0;
  return out;
}

Result<RegionRef> RegionCache::getGpu(const MemoryDesc& desc) {
  if (!options_.driver || !options_.path.works())
    return Error(Code::unavailable, kOperation,
                 format("%zu bytes at %p: this device takes host memory only: %s", desc.length, desc.address,
                        options_.path.why.empty() ? "there is no CUDA driver" : options_.path.why.c_str()));
  TRY(const GpuRange range, findOut(desc));
  if (range.buffer == 0) return getUnnumbered(desc, range);
  if (RegionRef found =
          Table::findGpu(table_, {range.buffer, desc.strictOrder, desc.peers, range.first, range.end}))
    return found;
  dropFreed();
  TRY(RegionRef fresh, registerGpu(desc, range));
  const auto first = reinterpret_cast<uintptr_t>(fresh->begin());
  const Key key{range.buffer, desc.strictOrder, desc.peers, first, first + fresh->length()};
  return Table::keepGpu(table_, key, {desc.address, desc.length}, std::move(fresh));
}

// Nothing tells memory without a number from what was freed at its address. So it has a region of its own for
// as long as somebody uses it, as host memory has.
Result<RegionRef> RegionCache::getUnnumbered(const MemoryDesc& desc, const GpuRange& range) {
  const Key key{0, desc.strictOrder, desc.peers, range.first, range.end};
  if (RegionRef found = table_->find(key)) return found;
  dropFreed();
  MemoryDesc wanted = desc;
  wanted.gpu = range.gpu;
  TRY(RegionRef fresh, registerPart(wanted, range));
  return table_->keep(key, std::move(fresh));
}

// Runs before each registration: a freed allocation's number no longer belongs to its address. The range that
// was asked for has the same segments as then, or it is another one.
void RegionCache::dropFreed() {
  if (!options_.driver) return;
  for (const auto& [buffer, asked] : table_->unused()) {
    MemoryDesc desc;
    desc.address = const_cast<void*>(asked.address);
    desc.length = asked.length;
    const auto now = findOut(desc);
    if (!now || now->buffer != buffer) table_->evictBuffer(buffer);
  }
}

// Tries the whole allocation first, so that its other parts are found later. Its failure is no error: the
// range alone is tried next.
Result<RegionRef> RegionCache::registerGpu(const MemoryDesc& desc, const GpuRange& range) {
  MemoryDesc wanted = desc;
  wanted.gpu = range.gpu;
  const bool wider = range.wholeFirst < range.first || range.wholeEnd > range.end;
  if (wider && range.wholeEnd - range.wholeFirst <= options_.mostKeptBytes) {
    auto whole = registerGpuRange(wanted, range.wholeFirst, range.wholeEnd, false);
    if (whole) return whole;
  }
  return registerPart(wanted, range);
}

// The caller's own descriptor covers just this range.
Result<RegionRef> RegionCache::registerPart(const MemoryDesc& desc, const GpuRange& range) {
  const auto first = reinterpret_cast<uintptr_t>(desc.address);
  if (desc.kind == MemoryKind::dmabuf && options_.path.dmabuf)
    return registerGpuRange(desc, first, first + desc.length, true);
  return registerGpuRange(desc, range.first, range.end, false);
}

Result<RegionRef> RegionCache::registerGpuRange(const MemoryDesc& desc, uintptr_t first, uintptr_t end,
                                                bool given) {
  MemoryDesc exact = desc;
  exact.address = reinterpret_cast<void*>(first);
  exact.length = end - first;
  exact.direct = options_.path.direct;
  if (given) return registerEvicting(exact);
  exact.kind = options_.path.dmabuf ? MemoryKind::dmabuf : MemoryKind::cuda;
  exact.fdOffset = 0;
  Fd exported;
  if (options_.path.dmabuf) {
    TRY(exported, options_.driver->exportDmabuf(exact.address, exact.length, options_.path.pcie));
    exact.fd = exported.get();
  }
  return registerEvicting(exact);
}

}  // namespace weft::mem
