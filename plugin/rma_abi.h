// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "plugin/abi.h"
#include "plugin/rma.h"

// The shapes of NCCL's one-sided calls, as abi.h has those of the network tables: picked by the type of the
// table's own field. Every signal is strong, and every operation leaves at once, so neither isStrongSignal
// nor optFlags is looked at.
namespace weft::plugin::rma_abi {

inline ncclResult_t connect(void* /*the context of another table*/, void* handles[], int ranks, int rank,
                            void* listenComm, void** collComm) {
  return connectTeam(handles, ranks, rank, listenComm, collComm);
}

// NCCL's adapter of v13 passes null for the place of the device handle; nothing is written there.
template <class Config>
ncclResult_t createContext(void* collComm, Config* config, void** rmaContext) {
  return createRmaContext(collComm, config ? config->nContexts : 1, rmaContext);
}
template <class Config, class DeviceHandle>
ncclResult_t createContext(void* collComm, Config* config, void** rmaContext, DeviceHandle** /*untouched*/) {
  return createContext(collComm, config, rmaContext);
}

inline ncclResult_t regMrSym(void* collComm, void* data, size_t size, int type, uint64_t flags,
                             void** mhandle) {
  return registerWindow(collComm, data, size, type, flags, mhandle);
}
inline ncclResult_t regMrSym(void* collComm, void* data, size_t size, int type, uint64_t flags,
                             void** mhandle, void** ginHandle) {
  const ncclResult_t result = regMrSym(collComm, data, size, type, flags, mhandle);
  if (ginHandle) *ginHandle = mhandle ? *mhandle : nullptr;
  return result;
}

inline ncclResult_t regMrSymDmaBuf(void* collComm, void* data, size_t size, int type, uint64_t offset, int fd,
                                   uint64_t flags, void** mhandle) {
  return registerWindowDmaBuf(collComm, data, size, type, offset, fd, flags, mhandle);
}
inline ncclResult_t regMrSymDmaBuf(void* collComm, void* data, size_t size, int type, uint64_t offset, int fd,
                                   uint64_t flags, void** mhandle, void** ginHandle) {
  const ncclResult_t result = regMrSymDmaBuf(collComm, data, size, type, offset, fd, flags, mhandle);
  if (ginHandle) *ginHandle = mhandle ? *mhandle : nullptr;
  return result;
}

inline ncclResult_t iput(void* rmaContext, int context, uint64_t sourceOffset, void* sourceMhandle,
                         size_t size, uint64_t targetOffset, void* targetMhandle, uint32_t rank,
                         void** request) {
  return startPut({rmaContext, context, sourceOffset, sourceMhandle, size, targetOffset, targetMhandle, rank},
                  request);
}
inline ncclResult_t iput(void* rmaContext, int context, uint64_t sourceOffset, void* sourceMhandle,
                         size_t size, uint64_t targetOffset, void* targetMhandle, uint32_t rank,
                         uint32_t /*optFlags*/, void** request) {
  return iput(rmaContext, context, sourceOffset, sourceMhandle, size, targetOffset, targetMhandle, rank,
              request);
}

inline ncclResult_t iputSignal(void* rmaContext, int context, uint64_t sourceOffset, void* sourceMhandle,
                               size_t size, uint64_t targetOffset, void* targetMhandle, uint32_t rank,
                               uint64_t signalOffset, void* signalMhandle, uint64_t signalValue,
                               uint32_t signalOp, void** request) {
  return startPutSignal(
      {rmaContext, context, sourceOffset, sourceMhandle, size, targetOffset, targetMhandle, rank},
      {signalOffset, signalMhandle, signalValue, signalOp}, request);
}
inline ncclResult_t iputSignal(void* rmaContext, int context, uint64_t sourceOffset, void* sourceMhandle,
                               size_t size, uint64_t targetOffset, void* targetMhandle, uint32_t rank,
                               uint64_t signalOffset, void* signalMhandle, uint64_t signalValue,
                               uint32_t signalOp, bool /*isStrongSignal*/, void** request) {
  return iputSignal(rmaContext, context, sourceOffset, sourceMhandle, size, targetOffset, targetMhandle, rank,
                    signalOffset, signalMhandle, signalValue, signalOp, request);
}
inline ncclResult_t iputSignal(void* rmaContext, int context, uint64_t sourceOffset, void* sourceMhandle,
                               size_t size, uint64_t targetOffset, void* targetMhandle, uint32_t rank,
                               uint64_t signalOffset, void* signalMhandle, uint64_t signalValue,
                               uint32_t signalOp, bool isStrongSignal, uint32_t /*optFlags*/,
                               void** request) {
  return iputSignal(rmaContext, context, sourceOffset, sourceMhandle, size, targetOffset, targetMhandle, rank,
                    signalOffset, signalMhandle, signalValue, signalOp, isStrongSignal, request);
}

inline ncclResult_t iget(void* rmaContext, int context, uint64_t remoteOffset, void* remoteMhandle,
                         size_t size, uint64_t localOffset, void* localMhandle, uint32_t rank,
                         void** request) {
  return startGet({rmaContext, context, localOffset, localMhandle, size, remoteOffset, remoteMhandle, rank},
                  request);
}
inline ncclResult_t iget(void* rmaContext, int context, uint64_t remoteOffset, void* remoteMhandle,
                         size_t size, uint64_t localOffset, void* localMhandle, uint32_t rank,
                         uint32_t /*optFlags*/, void** request) {
  return iget(rmaContext, context, remoteOffset, remoteMhandle, size, localOffset, localMhandle, rank,
              request);
}

template <class Table>
constexpr Table makeRma() {
  Table table{};
  table.name = "weft";
  table.init = &openRmaContext;
  table.devices = &countRmaDevices;
  if constexpr (requires { table.getRmaProperties; }) table.getRmaProperties = &rmaProperties;
  table.getProperties = &rmaDeviceProperties;
  table.listen = &abi::listen;
  table.connect = &connect;
  table.createContext = &createContext;
  table.regMrSym = &regMrSym;
  table.regMrSymDmaBuf = &regMrSymDmaBuf;
  table.deregMrSym = &deregisterWindow;
  table.destroyContext = &destroyRmaContext;
  table.closeColl = &closeTeam;
  table.closeListen = &closeListen;
  table.iput = &iput;
  table.iputSignal = &iputSignal;
  table.iget = &iget;
  table.iflush = &rmaFlush;
  table.test = &rmaTest;
  if constexpr (requires { table.ginProgress; })
    table.ginProgress = &rmaProgress;
  else
    table.rmaProgress = &rmaProgress;
  table.queryLastError = &rmaLastError;
  table.finalize = &closeRmaContext;
  return table;
}

}  // namespace weft::plugin::rma_abi
