// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "nccl/rma.h"
#include "tools/netdriver/net.h"

// A plugin's table of one-sided operations, the same for versions 13 to 16: what a version lacks is left out
// as NCCL's own adapters do. Results are NCCL's, unchecked. Threads: include/nccl/rma.h. Owned by its
// Library, which must outlive every use.
namespace weft::netdriver {

constexpr int kOldestRma = 13;
constexpr int kNewestRma = 16;

// The bytes of a put or a get: `local` is this rank's end, `remote` the other's. A put without bytes may have
// null for both.
struct RmaMove {
  void* local = nullptr;
  uint64_t localOffset = 0;
  void* remote = nullptr;
  uint64_t remoteOffset = 0;
  size_t bytes = 0;
  uint32_t rank = 0;
  int context = 0;
  bool more = false;  // another operation to the same rank follows at once
};

// An addition to a 64-bit word of the other rank.
struct RmaSignal {
  void* mhandle = nullptr;
  uint64_t offset = 0;
  uint64_t value = 1;
  uint32_t op = NCCL_NET_SIGNAL_OP_ADD;
  bool strong = true;
};

class RmaTable {
 public:
  virtual ~RmaTable() = default;

  virtual int version() const = 0;
  virtual ncclResult_t init(void** context, uint64_t commId) = 0;
  virtual ncclResult_t finalize(void* context) = 0;
  virtual ncclResult_t devices(int* count) = 0;
  virtual ncclResult_t listen(void* context, int device, void* handle, void** listenComm) = 0;
  virtual ncclResult_t connect(void* context, void** handles, int ranks, int rank, void* listenComm,
                               void** collComm) = 0;
  virtual ncclResult_t closeListen(void* listenComm) = 0;
  virtual ncclResult_t closeColl(void* collComm) = 0;
  virtual ncclResult_t createContext(void* collComm, int contexts, void** rmaContext) = 0;
  virtual ncclResult_t destroyContext(void* rmaContext) = 0;
  virtual ncclResult_t regMr(void* collComm, void* data, size_t bytes, uint64_t flags, void** mhandle) = 0;
  virtual ncclResult_t deregMr(void* collComm, void* mhandle) = 0;

  virtual ncclResult_t put(void* rmaContext, const RmaMove& move, void** request) = 0;
  virtual ncclResult_t putSignal(void* rmaContext, const RmaMove& move, const RmaSignal& signal,
                                 void** request) = 0;
  virtual ncclResult_t get(void* rmaContext, const RmaMove& move, void** request) = 0;
  virtual ncclResult_t test(void* collComm, void* request, int* done) = 0;
  virtual ncclResult_t progress(void* rmaContext) = 0;
};

// By the symbol of a version that the library exports.
std::unique_ptr<RmaTable> makeRmaTable(const void* symbol, int version);

}  // namespace weft::netdriver
