// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "nccl/net.h"
#include "plugin/calls.h"
#include "plugin/data.h"
#include "plugin/properties.h"

// The shapes of NCCL's calls. Each signature that occurs in a table of version 6 to 12 is an overload or a
// template here and forwards to calls.h. The type of the table's own field picks it, so a signature that is
// wrong or missing does not compile. A negative int size becomes larger than any limit and is refused there.
namespace weft::plugin::abi {

// --- init: v6 to v9 take a logger only, v10 a profiler too, v11 and later a context of the communicator

inline ncclResult_t init(ncclDebugLogger_t logger) {
  return startShared(logger, nullptr);
}

inline ncclResult_t init(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler) {
  return startShared(logger, profiler);
}

template <class Config>
ncclResult_t init(void** context, uint64_t commId, Config* config, ncclDebugLogger_t logger,
                  ncclProfilerCallback_t profiler) {
  const int trafficClass = config ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF;
  return openContext(context, commId, trafficClass, logger, profiler);
}

// --- devices: the struct of the table decides which facts are written (properties.h)

template <class Properties>
ncclResult_t getProperties(int device, Properties* out) {
  return guard("getProperties", [&]() -> Status { return writeProperties(device, out); });
}

template <class Members>
ncclResult_t makeVDevice(int* device, Members* members) {
  return guard(
      "makeVDevice", [&]() -> Status { return fuseDevices(device, members); }, LogLevel::info);
}

// --- connections: from v11 on NCCL passes the context of init; before that the traffic class of v10 chooses
// one

inline ncclResult_t listen(int device, void* handle, void** listenComm) {
  return listenOn({}, device, handle, listenComm);
}

inline ncclResult_t listen(void* context, int device, void* handle, void** listenComm) {
  return listenOn({true, context}, device, handle, listenComm);
}

inline ncclResult_t connect(int device, void* handle, void** sendComm) {
  return connectTo({}, device, handle, sendComm);
}

template <class DeviceHandle>
ncclResult_t connect(int device, void* handle, void** sendComm, DeviceHandle** /*untouched*/) {
  return connectTo({}, device, handle, sendComm);
}

template <class Config, class DeviceHandle>
ncclResult_t connect(int device, Config* config, void* handle, void** sendComm,
                     DeviceHandle** /*untouched*/) {
  const int trafficClass = config ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF;
  return connectTo({false, nullptr, trafficClass}, device, handle, sendComm);
}

template <class DeviceHandle>
ncclResult_t connect(void* context, int device, void* handle, void** sendComm, DeviceHandle** /*untouched*/) {
  return connectTo({true, context}, device, handle, sendComm);
}

inline ncclResult_t accept(void* listenComm, void** recvComm) {
  return acceptFrom(listenComm, recvComm);
}

template <class DeviceHandle>
ncclResult_t accept(void* listenComm, void** recvComm, DeviceHandle** /*untouched*/) {
  return acceptFrom(listenComm, recvComm);
}

// --- memory and data: sizes are int up to v8 and size_t from v9 on; handles for the profiler come with v10

template <class Size>
ncclResult_t regMr(void* comm, void* data, Size size, int type, void** mhandle) {
  return registerRange(comm, data, static_cast<size_t>(size), type, mhandle);
}

template <class Size>
ncclResult_t isend(void* comm, void* data, Size size, int tag, void* mhandle, void** request) {
  return postSend(comm, data, static_cast<size_t>(size), tag, mhandle, nullptr, request);
}

template <class Size>
ncclResult_t isend(void* comm, void* data, Size size, int tag, void* mhandle, void* phandle, void** request) {
  return postSend(comm, data, static_cast<size_t>(size), tag, mhandle, phandle, request);
}

// Reads a size of the table's own type, for code that does not know the table.
template <class Size>
size_t sizeOf(const void* sizes, int index) {
  return static_cast<size_t>(static_cast<const Size*>(sizes)[index]);
}

// NCCL mostly posts a single receive, so that case has no array to copy. Everything else, faults included, is
// a group.
template <class Size>
ncclResult_t irecv(void* comm, int n, void** data, Size* sizes, int* tags, void** mhandles, void** request) {
  if (n == 1 && data && sizes && tags && mhandles && request) [[likely]]
    return postOne(comm, *data, static_cast<size_t>(*sizes), *tags, *mhandles, nullptr, request);
  return postReceive(comm, {n, data, sizes, &sizeOf<Size>, tags, mhandles, nullptr}, request);
}

template <class Size>
ncclResult_t irecv(void* comm, int n, void** data, Size* sizes, int* tags, void** mhandles, void** phandles,
                   void** request) {
  if (n == 1 && data && sizes && tags && mhandles && request) [[likely]]
    return postOne(comm, *data, static_cast<size_t>(*sizes), *tags, *mhandles, phandles ? *phandles : nullptr,
                   request);
  return postReceive(comm, {n, data, sizes, &sizeOf<Size>, tags, mhandles, phandles}, request);
}

template <class Size>
ncclResult_t iflush(void* comm, int n, void** data, Size* sizes, void** mhandles, void** request) {
  return postFlush(comm, {n, data, sizes, &sizeOf<Size>, nullptr, mhandles, nullptr}, request);
}

// --- a whole table. getDeviceMr and irecvConsumed stay null: they are for transports with GPU code.
// setNetAttr stays null as well: NCCL would call it with each operation, on the thread that moves the data,
// and weft has no use for its hints.

template <class Net>
constexpr Net makeNet() {
  Net net{};
  net.name = "weft";
  net.init = &init;
  net.devices = &countDevices;
  net.getProperties = &getProperties;
  net.listen = &listen;
  net.connect = &connect;
  net.accept = &accept;
  net.regMr = &regMr;
  net.regMrDmaBuf = &regMrDmaBuf;
  net.deregMr = &deregMr;
  net.isend = &isend;
  net.irecv = &irecv;
  net.iflush = &iflush;
  net.test = &test;
  net.closeSend = &closeSend;
  net.closeRecv = &closeRecv;
  net.closeListen = &closeListen;
  if constexpr (requires { net.makeVDevice; }) net.makeVDevice = &makeVDevice;
  if constexpr (requires { net.finalize; }) net.finalize = &closeContext;
  return net;
}

}  // namespace weft::plugin::abi
