// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/softgpu/driver/driver.h"
#include "tests/softgpu/memory.h"
#include "tests/softgpu/report.h"
#include "tests/softgpu/stream.h"

// Streams that write words of memory, and wait for them: what a stream shares with threads of the host and
// with network cards. Words are in device memory or in host memory that the driver knows.

using namespace softgpu;

namespace {

constexpr int kWait32 = 1, kWrite32 = 2, kFlushRemoteWrites = 3, kWait64 = 4, kWrite64 = 5, kBarrier = 6;
constexpr unsigned kFlushBefore = 1U << 30;
constexpr unsigned kAtLeast = 0, kEqual = 1, kAnd = 2, kNor = 3;

bool isWait(const MemoryOperation& one) {
  return one.operation == kWait32 || one.operation == kWait64;
}
bool isWrite(const MemoryOperation& one) {
  return one.operation == kWrite32 || one.operation == kWrite64;
}
bool isWide(const MemoryOperation& one) {
  return one.operation == kWait64 || one.operation == kWrite64;
}
const void* wordOf(const MemoryOperation& one) {
  return reinterpret_cast<const void*>(static_cast<uintptr_t>(one.address));
}

// Values count round and round, so "at least" looks at the sign of the difference.
bool holds(const MemoryOperation& one, uint64_t now) {
  const uint64_t wanted = isWide(one) ? one.value : static_cast<uint32_t>(one.value);
  switch (one.flags & ~kFlushBefore) {
    case kAtLeast:
      return isWide(one) ? static_cast<int64_t>(now - wanted) >= 0
                         : static_cast<int32_t>(static_cast<uint32_t>(now - wanted)) >= 0;
    case kEqual:
      return now == wanted;
    case kAnd:
      return (now & wanted) != 0;
    default:
      return (~(now | wanted) & (isWide(one) ? ~uint64_t{0} : uint64_t{0xffff'ffff})) != 0;
  }
}

// Memory that was freed meanwhile ends the wait: a GPU would report a fault then.
void waitFor(const MemoryOperation& one) {
  constexpr int kYields = 100;
  for (int turn = 0;; ++turn) {
    const auto now = readWord(wordOf(one), isWide(one));
    if (!now || holds(one, *now)) return;
    if (turn < kYields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void perform(const std::vector<MemoryOperation>& all) {
  for (const auto& one : all) {
    if (isWait(one)) waitFor(one);
    if (isWrite(one)) writeWord(wordOf(one), isWide(one), one.value);
  }
}

Result check(const MemoryOperation& one) {
  if (one.operation == kBarrier || one.operation == kFlushRemoteWrites) return kSuccess;
  if (!isWait(one) && !isWrite(one)) return kInvalidValue;
  if (one.address % (isWide(one) ? sizeof(uint64_t) : sizeof(uint32_t)) != 0) return kInvalidValue;
  if (isWait(one) && (one.flags & ~kFlushBefore) > kNor) return kInvalidValue;
  return findMapping(wordOf(one)) ? kSuccess : kInvalidValue;
}

Result submitAll(void* stream, std::vector<MemoryOperation> all) {
  for (const auto& one : all)
    if (const Result fault = check(one); fault != kSuccess) return fault;
  streamOf(stream).submit([all = std::move(all)] { perform(all); });
  return kSuccess;
}

}  // namespace

Result cuStreamBatchMemOp_v2(void* stream, unsigned count, const MemoryOperation* operations, unsigned) {
  return submitAll(stream, {operations, operations + count});
}

Result cuStreamWaitValue32_v2(void* stream, DevicePointer address, uint32_t value, unsigned flags) {
  return submitAll(stream, {{kWait32, address, value, flags, 0, {}}});
}

Result cuStreamWaitValue64_v2(void* stream, DevicePointer address, uint64_t value, unsigned flags) {
  return submitAll(stream, {{kWait64, address, value, flags, 0, {}}});
}

Result cuStreamWriteValue32_v2(void* stream, DevicePointer address, uint32_t value, unsigned flags) {
  return submitAll(stream, {{kWrite32, address, value, flags, 0, {}}});
}

Result cuStreamWriteValue64_v2(void* stream, DevicePointer address, uint64_t value, unsigned flags) {
  return submitAll(stream, {{kWrite64, address, value, flags, 0, {}}});
}
