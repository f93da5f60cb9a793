// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <atomic>
#include <bit>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/softgpu/kernels/fault.h"
#include "tests/softgpu/kernels/players.h"
#include "tests/softgpu/kernels/primitive.h"
#include "tests/softgpu/kernels/work.h"
#include "tests/softgpu/report.h"

namespace softgpu {

namespace {

// ncclDevKernelArgs, the same from 2.22 on; ncclDevWorkBatch[] follows.
struct Arguments {
  char* comm;
  uint64_t channelMask;
  uint8_t storage;  // 0: work lies in the arguments, otherwise in `work`
  uint32_t workMask;
  char* work;
};
static_assert(sizeof(Arguments) == 32);
constexpr size_t kArgumentsSize = sizeof(Arguments);

struct Batch {
  uint32_t nextJump : 14, nextExtends : 1, type : 2, function : 15;
  uint32_t offsetBase;
  uint64_t offsetBits;
};
static_assert(sizeof(Batch) == 16);

enum WorkType { kSendReceive = 0, kCollective = 1, kRegisteredCollective = 2 };

constexpr int kProfilerEvents = 64;

// All that belongs to one channel of one launch.
struct Channel {
  Block& block;
  const Arguments& arguments;
  char* parameters;
};

size_t workSize(const Layout& layout, unsigned type) {
  if (type == kSendReceive) return static_cast<size_t>(layout.p2pWorkSize);
  return static_cast<size_t>(type == kCollective ? layout.workSize : layout.registeredWorkSize);
}

// Copies the descriptors of a batch: they may wrap round at the end of the work buffer, every sixteen bytes.
void readBatch(const Channel& channel, const Batch& batch, std::vector<char>& works) {
  constexpr size_t kPack = 16;
  const size_t size = workSize(channel.block.layout(), batch.type);
  for (uint64_t bits = batch.offsetBits; bits != 0; bits &= bits - 1) {
    const size_t begin = batch.offsetBase + static_cast<size_t>(std::countr_zero(bits)) * size;
    for (size_t at = 0; at < size; at += kPack) {
      const char* const from = channel.arguments.storage == 0
                                   ? channel.parameters + begin + at
                                   : channel.arguments.work + ((begin + at) & channel.arguments.workMask);
      works.insert(works.end(), from, from + kPack);
    }
  }
}

bool canPlay(const DeviceFunction& function) {
  if (function.collective == "SendRecv") return true;
  if (function.protocol == "LL128" || function.collective == "AllGatherV") return false;
  return function.algorithm == "RING" || function.algorithm == "TREE" || function.algorithm == "PAT" ||
         function.algorithm == "COLLNET_CHAIN";
}

int protocolOf(const DeviceFunction& function) {
  return function.protocol == "LL" ? kLL : kSimple;
}

void playCollective(Block& block, char* descriptor, const DeviceFunction& function) {
  const auto bytes = makeReduction(function.reduction, function.type, 2);
  const int protocol = protocolOf(function);
  const bool collnet = function.algorithm == "COLLNET_CHAIN";
  const CollectiveWork work = collnet ? readCollnetWork(block, descriptor, bytes->size())
                                      : readWork(block, descriptor, protocol, bytes->size());
  if (collnet && work.buffersRegistered) {
    failKernel(
        "buffers registered for CollNet are not played; NCCL_GRAPH_REGISTER=0 NCCL_LOCAL_REGISTER=0 switch "
        "them off");
    return;
  }
  const auto reduction = makeReduction(function.reduction, function.type, work.argument);
  const Play play{block, work, *reduction, protocol};
  if (function.algorithm == "TREE") {
    playTree(play);
  } else if (collnet) {
    playCollnetChain(play);
  } else if (function.algorithm == "PAT") {
    playPat(play, function);
  } else {
    playRing(play, function);
  }
}

// NCCL's profiler wants to know when a work began and when it ended: a time and a count, in a ring of 64.
void tellProfiler(const Block& block, int table, bool enabled, uint64_t counter) {
  if (!enabled || table < 0) return;
  char* const all = viewAs<char>(field<void*>(block.comm(), table));
  if (all == nullptr) return;
  char* const entry =
      all + (static_cast<size_t>(block.channelId()) * kProfilerEvents + counter % kProfilerEvents) * 16;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  writeShared(reinterpret_cast<uint64_t*>(entry + 8),
              static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec));
  writeShared(reinterpret_cast<uint64_t*>(entry), counter);
}

bool profiled(unsigned type, const Layout& layout, char* work) {
  if (type == kSendReceive) return (field<uint8_t>(work, layout.chunkSizes + 2) >> 6 & 1) != 0;
  return (field<uint8_t>(work, 3) >> 7 & 1) != 0;
}

void playRun(Block& block, unsigned type, const DeviceFunction& function, std::vector<char>& works) {
  const Layout& layout = block.layout();
  const size_t size = workSize(layout, type);
  std::vector<char*> each;
  for (size_t at = 0; at < works.size(); at += size) each.push_back(works.data() + at);
  auto& counter = field<uint64_t>(block.channel(), layout.workCounter);
  const bool counts = layout.workStarted >= 0;
  for (size_t i = 0; counts && i < each.size(); ++i) {
    tellProfiler(block, layout.workStarted, profiled(type, layout, each[i]), counter + 1 + i);
  }
  if (type == kSendReceive) {
    playSendReceive(block, each.data(), each.size());
  } else {
    for (char* work : each) playCollective(block, work, function);
  }
  for (size_t i = 0; counts && i < each.size(); ++i) {
    tellProfiler(block, layout.workCompleted, profiled(type, layout, each[i]), counter + 1 + i);
  }
  if (counts) counter += each.size();
}

// Follows the channel's list of batches.
void playChannel(const Channel& channel, unsigned blockIndex) {
  const auto* const batches = reinterpret_cast<const Batch*>(channel.parameters + kArgumentsSize);
  unsigned index = blockIndex;
  while (!channel.block.aborted()) {
    std::vector<char> works;
    readBatch(channel, batches[index], works);
    while (batches[index].nextExtends != 0) {
      index += batches[index].nextJump;
      readBatch(channel, batches[index], works);
    }
    const Batch& last = batches[index];
    const DeviceFunction* const function = findFunction(channel.block.version(), last.function);
    if (function == nullptr || !canPlay(*function)) {
      failKernel("NCCL's device function " + std::to_string(last.function) + " (" +
                 (function == nullptr ? "unknown" : function->text()) +
                 ") is not played; choose another by NCCL_ALGO or NCCL_PROTO");
      return;
    }
    playRun(channel.block, last.type, *function, works);
    if (last.nextJump == 0) return;
    index += last.nextJump;
  }
}

int channelOf(uint64_t mask, unsigned block) {
  for (; block > 0; --block) mask &= mask - 1;
  return std::countr_zero(mask);
}

}  // namespace

void playNccl(Launch& launch, const Layout& layout, int version) {
  Arguments arguments{};
  std::memcpy(&arguments, launch.parameters.data(), kArgumentsSize);
  arguments.comm = viewAs<char>(arguments.comm);
  arguments.work = viewAs<char>(arguments.work);
  const bool hangs = nextLaunchHangs();
  const auto playBlock = [&](unsigned index) {
    Block block(layout, version, arguments.comm, channelOf(arguments.channelMask, index));
    if (beLateOrHang(block, hangs)) return;
    playChannel({block, arguments, launch.parameters.data()}, index);
  };
  std::vector<std::thread> others;
  for (unsigned index = 1; index < launch.blocks; ++index) others.emplace_back(playBlock, index);
  playBlock(0);
  for (auto& other : others) other.join();
}

}  // namespace softgpu
