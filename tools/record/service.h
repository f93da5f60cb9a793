// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <span>

#include "tools/record/data.h"

// The other calls, forwarded and recorded: contexts, devices, connections, registrations. They are seldom, so
// `forward` is a std::function here. NCCL's service thread and the user's.
namespace weft::record {

using Forward = std::function<ncclResult_t(void* real)>;
using ForwardTo = std::function<ncclResult_t(void* real, void** made)>;

// Of the network's table (init, finalize, listen), or of another (collInit, rmaFinalize, rmaListen and so
// on). The traffic class is the network's only.
ncclResult_t recordInit(trace::Kind kind, void** context, uint64_t commId, int trafficClass,
                        const std::function<ncclResult_t(void** made)>& forward);
ncclResult_t recordFinalize(trace::Kind kind, void* context, const Forward& forward);
ncclResult_t recordDevices(int* count, const std::function<ncclResult_t()>& forward);
ncclResult_t recordMembers(int* device, int count, const int* members,
                           const std::function<ncclResult_t()>& forward);

// The answer of a getProperties; values as in the trace's event.
void writeProperties(const Timed& timed, const std::array<uint64_t, trace::kMostFields>& values,
                     const char* name);
// Also of one whose data path is on a GPU: it is refused with a line that says so.
ncclResult_t refuseDevice(int device);

ncclResult_t recordListen(trace::Kind kind, void* context, int device, void* handle, void** listenComm,
                          const ForwardTo& forward);
ncclResult_t recordConnect(void* context, int device, void* handle, void** sendComm,
                           const ForwardTo& forward);
ncclResult_t recordAccept(void* listenComm, void** recvComm, const ForwardTo& forward);
// Of collective offload. `handles` are those of all ranks.
// Or of one-sided operations (rmaConnect).
ncclResult_t recordGroupConnect(trace::Kind kind, std::span<void* const> handles, int rank, void* listenComm,
                                void** collComm, const ForwardTo& forward);

ncclResult_t recordClose(trace::Kind kind, void* comm, const Forward& forward);

struct Registered {
  trace::Kind kind;
  void* comm;
  void* data;
  size_t bytes;
  int type;
  uint64_t offset = 0;  // of a dma-buf
};
ncclResult_t recordRegister(const Registered& what, void** mhandle, const ForwardTo& forward);
ncclResult_t recordDeregister(void* comm, void* mhandle,
                              const std::function<ncclResult_t(void* realComm, void* realMemory)>& forward);

// A hint: whether it differs from the context's last one, and is to be written.
bool changes(void* context, const std::array<uint64_t, 11>& attributes);
void writeAttributes(const Timed& call, void* context, const std::array<uint64_t, 11>& attributes);

// The table NCCL took.
void writeTable(int version, const std::string& text);

}  // namespace weft::record
