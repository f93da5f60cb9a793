// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "nccl/rma.h"
#include "plugin/objects.h"

// The calls of NCCL's one-sided tables without their version, as calls.h has those of the network tables.
// rma_abi.h has each table's signatures and forwards to these functions. Threads: include/nccl/rma.h.
namespace weft::plugin {

// The network's devices, or none where one-sided operations would be incomplete; the log of init says why.
ncclResult_t countRmaDevices(int* count);
// NCCL calls it twice a communicator, and never closes a context where there is no device: such a context is
// no object.
ncclResult_t openRmaContext(void** context, uint64_t communicator, ncclDebugLogger_t logger);
ncclResult_t closeRmaContext(void* context);
ncclResult_t rmaDeviceProperties(int device, ncclNetProperties_v12_t* properties);
ncclResult_t rmaProperties(void* collComm, ncclRmaProperties_v16_t* properties);

// Blocks until all ranks are connected. The context is the listener's: NCCL passes the context
// of another table.
ncclResult_t connectTeam(void* handles[], int ranks, int rank, void* listenComm, void** collComm);
ncclResult_t closeTeam(void* collComm);
ncclResult_t createRmaContext(void* collComm, int contexts, void** rmaContext);
ncclResult_t destroyRmaContext(void* rmaContext);

// Block until all ranks have registered.
ncclResult_t registerWindow(void* collComm, void* data, size_t bytes, int type, uint64_t flags,
                            void** mhandle);
ncclResult_t registerWindowDmaBuf(void* collComm, void* data, size_t bytes, int type, uint64_t offset, int fd,
                                  uint64_t flags, void** mhandle);
ncclResult_t deregisterWindow(void* collComm, void* mhandle);

// The part of a put that has no signal, or of a get: then `source` is this rank's and `target` the other's.
struct RmaCall {
  void* rmaContext;
  int context;
  uint64_t sourceOffset;
  void* sourceMhandle;
  size_t bytes;
  uint64_t targetOffset;
  void* targetMhandle;
  uint32_t rank;
};
struct RmaSignal {
  uint64_t offset;
  void* mhandle;
  uint64_t value;
  uint32_t op;
};
ncclResult_t startPut(const RmaCall& call, void** request);
ncclResult_t startPutSignal(const RmaCall& call, const RmaSignal& signal, void** request);
ncclResult_t startGet(const RmaCall& call, void** request);
ncclResult_t rmaFlush(void* rmaContext, int context, void* mhandle, uint32_t rank, void** request);
ncclResult_t rmaTest(void* collComm, void* request, int* done);
ncclResult_t rmaProgress(void* rmaContext);
ncclResult_t rmaLastError(void* rmaContext, bool* failed);

}  // namespace weft::plugin
