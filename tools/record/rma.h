// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "nccl/rma.h"
#include "tools/record/service.h"

// The calls of one-sided operations, forwarded and recorded. Those that move data come from NCCL's proxy
// thread, the others from the user's; nothing here waits.
namespace weft::record {

// Made by createContext: operations name it, and it knows the ranks it is of.
struct RmaContext {
  void* real = nullptr;
  Comm* comm = nullptr;
  uint64_t number = 0;
};

// A range of a registration.
struct RmaRange {
  uint64_t offset = 0;
  void* mhandle = nullptr;

  void* real() const { return realOf<Memory>(mhandle); }
  trace::Part part(size_t bytes) const {
    const auto* memory = static_cast<const Memory*>(mhandle);
    return {bytes, memory != nullptr ? memory->number : 0, offset, 0};
  }
};

// A put or a get: `local` is this rank's end.
struct RmaMove {
  trace::Kind kind;
  void* context;
  int contextNumber;
  RmaRange local;
  RmaRange remote;
  size_t bytes;
  uint32_t rank;
  uint32_t hints = 0;
  RmaRange signal{};
  uint64_t value = 0;
  uint32_t op = 0;  // 0: no signal
  bool strong = false;
};

ncclResult_t recordMove(const RmaMove& move, void** request, const Forward& forward);
ncclResult_t recordRmaInit(int version, void** context, uint64_t commId,
                           const std::function<ncclResult_t(void** made)>& forward);
ncclResult_t recordCreateContext(void* collComm, int contexts, void** rmaContext, const ForwardTo& forward);
ncclResult_t recordDestroyContext(void* rmaContext, const Forward& forward);
ncclResult_t recordWindow(const Registered& what, uint64_t flags, void** mhandle, const ForwardTo& forward);

}  // namespace weft::record
