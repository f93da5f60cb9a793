// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "nccl/types.h"
#include "plugin/objects.h"

// The calls of NCCL's tables for collective offload without their version, as calls.h has those of the
// network tables. coll_abi.h has each table's signatures and forwards to these functions. Threads:
// include/nccl/collnet.h.
namespace weft::plugin {

// The network's devices, in their order and with their names, whatever WEFT_COLLNET says (coll.cc says why).
ncclResult_t countCollDevices(int* count);
ncclResult_t openCollContext(void** context, uint64_t communicator, ncclDebugLogger_t logger);

// Blocks until all ranks have the group or an error.
ncclResult_t connectGroup(void* handles[], int ranks, int rank, void* listenComm, void** collComm);
ncclResult_t closeColl(void* collComm);
// Asked before there is a group, so the answer is a constant.
ncclResult_t reduceSupport(ncclDataType_t type, ncclRedOp_t op, int* supported);

ncclResult_t registerWithGroup(void* collComm, void* data, size_t bytes, int type, void** mhandle);
ncclResult_t collRegMrDmaBuf(void* collComm, void* data, size_t size, int type, uint64_t offset, int fd,
                             void** mhandle);
ncclResult_t collDeregMr(void* collComm, void* mhandle);

// An all-gather or a reduce-scatter. Sizes are bytes.
struct GatherCall {
  void* own;  // this rank's side: the data that it sends, or that it receives of a reduce-scatter
  void* ownMhandle;
  int parts;   // parts of the side that has the window; only 1 is supported
  void* part;  // address, size and registration of the first part
  size_t partBytes;
  void* partMhandle;
  size_t bytesPerRank;
  size_t windowOffset;
  size_t windowBytes;
};
// Null in `request` with success: not now, NCCL calls again.
ncclResult_t startAllReduce(void* collComm, void* send, void* receive, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, void* sendMhandle, void* receiveMhandle, void** request);
ncclResult_t startAllGather(void* collComm, const GatherCall& call, void** request);
ncclResult_t startReduceScatter(void* collComm, const GatherCall& call, ncclDataType_t type, ncclRedOp_t op,
                                void** request);
ncclResult_t collFlush(void* collComm, void* data, int bytes, void* mhandle, void** request);
ncclResult_t collTest(void* request, int* done, int* size);

}  // namespace weft::plugin
