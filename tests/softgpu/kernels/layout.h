// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <string>

namespace softgpu {

// Where NCCL's device structures keep what kernels read: byte offsets, one row a version. NVIDIA's public
// sources of that version define them (src/include/device.h).
struct Layout {
  int fromVersion, toVersion;  // NCCL_VERSION_CODE, both included

  // ncclKernelComm (ncclDevComm before 2.27): the device's copy of a communicator; its channels follow at
  // `channels`.
  int rank, ranks, bufferSizes, p2pChunk, abortFlag, channels;
  int workStarted, workCompleted;  // the profiler's counters, -1: none that kernels write here
  // ncclDevChannel
  int channelSize, ring, tree, collnetChain, workCounter, mostChannels;
  // ncclRing, from `ring`
  int ringPrevious, ringNext, ringUserRanks, ringIndex;
  // ncclConnInfo
  int connectionSize, buffers, tail, head, flags, stepSize, fifo, step;
  // ncclDevWorkColl
  int workSize, registeredWorkSize, root, receiveBuffer, sendBuffer, counts, collnetCounts, argument;
  // ncclDevWorkP2p
  int p2pWorkSize, sendAddress, receiveAddress, sendBytes, receiveBytes, sendRank, receiveRank, p2pChannels,
      chunkSizes;
};

// The row of an NCCL version, or null.
const Layout* findLayout(int version);
// Why the kernels of a version cannot be played; empty when it has a row.
std::string layoutRefusal(int version);

// The same in all versions above.
constexpr size_t kFifoEntrySize = 24;  // ncclConnFifo: mode 0, offset 4, size 8, pointer 16
constexpr size_t kTreeDown = 8;        // ncclTree: depth 0, up 4, down[3] 8
constexpr unsigned kSteps = 8;         // of each buffer

}  // namespace softgpu
