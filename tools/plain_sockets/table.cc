// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "nccl/net.h"
#include "tools/plain_sockets/address.h"
#include "tools/plain_sockets/comm.h"
#include "tools/plain_sockets/connection.h"
#include "tools/plain_sockets/log.h"

// The baseline of the benches: NCCL's network table over plain TCP sockets, a connection for each comm. For
// measuring against; it has one device, host memory only, and no receives in groups.
namespace weft::baseline {

namespace {

// Owns what connects and was given up, as nobody else knows of it. The mutex: a service thread connects while
// another may.
struct Context {
  std::mutex mutex;
  std::set<std::unique_ptr<Connecting>> connecting;
};

// Ends an object that NCCL held for us: nothing happens to a null pointer.
template <class T>
ncclResult_t destroy(void* held) {
  std::unique_ptr<T>(static_cast<T*>(held)).reset();
  return ncclSuccess;
}

char memoryMark;  // what a registration is: there is nothing to register

ncclResult_t init(void** context, uint64_t, ncclNetCommConfig_v12_t*, ncclDebugLogger_t logger,
                  ncclProfilerCallback_t) {
  logTo(logger);
  *context = std::make_unique<Context>().release();
  return ncclSuccess;
}

ncclResult_t finalize(void* context) {
  return destroy<Context>(context);
}

ncclResult_t devices(int* count) {
  *count = 1;
  return ncclSuccess;
}

ncclResult_t getProperties(int device, ncclNetProperties_v12_t* properties) {
  if (device != 0) return complain(ncclInvalidArgument, "there is no device %d", device);
  const Interface& interface = chosenInterface();
  static std::string name = interface.name;
  *properties = {};
  properties->name = name.data();
  properties->ptrSupport = NCCL_PTR_HOST;
  properties->speed = interface.speedMbps;
  properties->port = 0;
  properties->maxComms = 65536;
  properties->maxRecvs = 1;
  properties->netDeviceType = NCCL_NET_DEVICE_HOST;
  properties->netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION;
  properties->vProps.ndevs = 1;
  properties->maxP2pBytes = MAX_NET_SIZE;
  properties->maxCollBytes = MAX_NET_SIZE;
  properties->maxMultiRequestSize = 1;
  properties->railId = NCCL_NET_ID_UNDEF;
  properties->planeId = NCCL_NET_ID_UNDEF;
  return ncclSuccess;
}

ncclResult_t listen(void*, int device, void* handle, void** listenComm) {
  if (device != 0) return complain(ncclInvalidArgument, "there is no device %d", device);
  Handle made;
  std::unique_ptr<Listening> listening;
  const ncclResult_t result = Listening::create(&made, &listening);
  if (result != ncclSuccess) return result;
  std::memcpy(handle, &made, sizeof made);
  *listenComm = listening.release();
  return ncclSuccess;
}

ncclResult_t beginConnect(Context* context, Handle* handle) {
  std::unique_ptr<Connecting> made;
  const ncclResult_t result = Connecting::create(*handle, &made);
  if (result != ncclSuccess) return result;
  handle->connecting = made.get();
  const std::lock_guard lock(context->mutex);
  context->connecting.insert(std::move(made));
  return ncclSuccess;
}

void endConnect(Context* context, const Connecting* connecting) {
  const std::lock_guard lock(context->mutex);
  std::erase_if(context->connecting, [&](const auto& one) { return one.get() == connecting; });
}

ncclResult_t connect(void* context, int, void* opaque, void** sendComm, ncclNetDeviceHandle_v12_t**) {
  auto* owner = static_cast<Context*>(context);
  Handle handle;
  std::memcpy(&handle, opaque, sizeof handle);
  *sendComm = nullptr;
  if (handle.connecting == nullptr) {
    const ncclResult_t result = beginConnect(owner, &handle);
    if (result != ncclSuccess) return result;
    std::memcpy(opaque, &handle, sizeof handle);
  }
  Fd socket;
  const ncclResult_t result = handle.connecting->finish(&socket);
  if (result == ncclSuccess && !socket) return ncclSuccess;
  endConnect(owner, handle.connecting);
  if (result == ncclSuccess) *sendComm = std::make_unique<SendComm>(std::move(socket)).release();
  return result;
}

ncclResult_t accept(void* listenComm, void** recvComm, ncclNetDeviceHandle_v12_t**) {
  *recvComm = nullptr;
  Fd socket;
  const ncclResult_t result = static_cast<Listening*>(listenComm)->accept(&socket);
  if (socket) *recvComm = std::make_unique<RecvComm>(std::move(socket)).release();
  return result;
}

ncclResult_t regMr(void*, void*, size_t, int type, void** mhandle) {
  if (type != NCCL_PTR_HOST) return complain(ncclInvalidArgument, "only host memory can be registered");
  *mhandle = &memoryMark;
  return ncclSuccess;
}

ncclResult_t deregMr(void*, void*) {
  return ncclSuccess;
}

ncclResult_t isend(void* sendComm, void* data, size_t size, int, void*, void*, void** request) {
  Request* started = nullptr;
  const ncclResult_t result = static_cast<SendComm*>(sendComm)->send(data, size, &started);
  *request = started;
  return result;
}

ncclResult_t irecv(void* recvComm, int n, void** data, size_t* sizes, int*, void**, void**, void** request) {
  *request = nullptr;
  if (n != 1) return complain(ncclInvalidArgument, "%d receives at once, and 1 is the most", n);
  *request = static_cast<RecvComm*>(recvComm)->start(data[0], sizes[0]);
  return ncclSuccess;
}

ncclResult_t iflush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;  // host memory needs none
  return ncclSuccess;
}

ncclResult_t test(void* request, int* done, int* sizes) {
  auto* one = static_cast<Request*>(request);
  return one->comm->test(one, done, sizes);
}

ncclResult_t closeSend(void* comm) {
  return destroy<SendComm>(comm);
}

ncclResult_t closeRecv(void* comm) {
  return destroy<RecvComm>(comm);
}

ncclResult_t closeListen(void* comm) {
  return destroy<Listening>(comm);
}

}  // namespace

}  // namespace weft::baseline

extern "C" [[gnu::visibility("default")]] const ncclNet_v12_t ncclNetPlugin_v12 = {
    .name = "plain-sockets",
    .init = weft::baseline::init,
    .devices = weft::baseline::devices,
    .getProperties = weft::baseline::getProperties,
    .listen = weft::baseline::listen,
    .connect = weft::baseline::connect,
    .accept = weft::baseline::accept,
    .regMr = weft::baseline::regMr,
    .regMrDmaBuf = nullptr,
    .deregMr = weft::baseline::deregMr,
    .isend = weft::baseline::isend,
    .irecv = weft::baseline::irecv,
    .iflush = weft::baseline::iflush,
    .test = weft::baseline::test,
    .closeSend = weft::baseline::closeSend,
    .closeRecv = weft::baseline::closeRecv,
    .closeListen = weft::baseline::closeListen,
    .getDeviceMr = nullptr,
    .irecvConsumed = nullptr,
    .makeVDevice = nullptr,
    .finalize = weft::baseline::finalize,
    .setNetAttr = nullptr,
};
