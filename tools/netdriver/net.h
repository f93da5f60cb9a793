// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tools/netdriver/calls.h"

// A network table of a loaded plugin, the same for every ABI version: what a version lacks is bridged as
// NCCL's own adapters do (one init a process before v11, sizes up to 1 GiB and no completion hint before v9).
// Results are NCCL's, unchecked, so programs can also provoke errors. Threads: as NCCL promises a plugin; Net
// itself adds no lock to the data path. Owned by its Library, which must outlive every use.
namespace weft::netdriver {

using Handle = std::array<std::byte, NCCL_NET_HANDLE_MAXSIZE>;

constexpr int kMaxGroup = 8;

// The answer of getProperties; fields a version does not have keep these values.
struct Properties {
  std::string name;
  std::string pciPath;
  uint64_t guid = 0;
  int ptrSupport = 0;
  int regIsGlobal = 0;
  int forceFlush = 0;
  int speedMbps = 0;
  int port = 0;
  float latencyUs = 0;
  int maxComms = 0;
  int maxRecvs = 0;
  int netDeviceType = NCCL_NET_DEVICE_HOST;
  int netDeviceVersion = 0;
  int virtualMembers = 1;
  uint64_t maxP2pBytes = uint64_t{1} << 30;
  uint64_t maxCollBytes = uint64_t{1} << 29;
  int maxMultiRequestSize = 1;
  int railId = -1;
  int planeId = -1;

  bool operator==(const Properties&) const = default;
};

// The handle that NCCL passes with every message from table v10 on: the record of the step it belongs to,
// which lives until the step is done and is there whether or not a profiler is.
struct StepRecord {
  void* event = nullptr;
  void* owner = nullptr;
};

struct SendArgs {
  void* data = nullptr;
  size_t size = 0;
  int tag = 0;
  void* mhandle = nullptr;
  void* phandle = nullptr;
};

struct RecvArgs {
  int n = 1;
  std::array<void*, kMaxGroup> data{};
  std::array<size_t, kMaxGroup> sizes{};
  std::array<int, kMaxGroup> tags{};
  std::array<void*, kMaxGroup> mhandles{};
  std::array<void*, kMaxGroup> phandles{};
  bool nullPhandles = false;  // pass NULL instead of the array, as NCCL's bootstrap does
};

class Net {
 public:
  virtual ~Net() = default;

  virtual int abi() const = 0;
  virtual const char* name() const = 0;
  // True where the table has the entry: all but setNetAttr, makeVDevice and finalize are mandatory.
  virtual bool has(Call call) const = 0;

  virtual ncclResult_t init(void** context, uint64_t commId, int trafficClass) = 0;
  virtual ncclResult_t finalize(void* context) = 0;
  // `operations` has a bit for each of NCCL's functions; all of them say that nobody knows.
  static constexpr uint32_t kAnyOperation = ~uint32_t{0};
  virtual ncclResult_t setNetAttr(void* context, int peers, int flowsPerPeer, uint32_t operations) = 0;
  ncclResult_t setNetAttr(void* context, int peers, int flowsPerPeer) {
    return setNetAttr(context, peers, flowsPerPeer, kAnyOperation);
  }
  virtual ncclResult_t devices(int* count) = 0;
  // NCCL passes the struct uninitialised: every byte of it is `fill` before the call.
  virtual ncclResult_t getProperties(int device, Properties* properties, uint8_t fill = 0xa5) = 0;
  // Tables before v9 cannot: ncclInvalidUsage. So do all with more members than theirs has room for.
  virtual ncclResult_t makeVDevice(std::span<const int> members, int* device) = 0;

  virtual ncclResult_t listen(void* context, int device, void* handle, void** listenComm) = 0;
  virtual ncclResult_t connect(void* context, int device, void* handle, void** sendComm) = 0;
  virtual ncclResult_t accept(void* listenComm, void** recvComm) = 0;
  virtual ncclResult_t closeSend(void* sendComm) = 0;
  virtual ncclResult_t closeRecv(void* recvComm) = 0;
  virtual ncclResult_t closeListen(void* listenComm) = 0;

  // `type`: NCCL_PTR_HOST or NCCL_PTR_CUDA.
  virtual ncclResult_t regMrAs(int type, void* comm, void* data, size_t size, void** mhandle) = 0;
  ncclResult_t regMr(void* comm, void* data, size_t size, void** mhandle) {
    return regMrAs(NCCL_PTR_HOST, comm, data, size, mhandle);
  }
  // Memory of a GPU, by a dma-buf that begins with it.
  virtual ncclResult_t regMrDmaBuf(void* comm, void* data, size_t size, uint64_t offset, int fd,
                                   void** mhandle) = 0;
  virtual ncclResult_t deregMr(void* comm, void* mhandle) = 0;

  // *request goes in as it is: it can carry NCCL's hint or a stale pointer.
  virtual ncclResult_t isend(void* sendComm, const SendArgs& args, void** request) = 0;
  virtual ncclResult_t irecv(void* recvComm, const RecvArgs& args, void** request) = 0;
  virtual ncclResult_t iflush(void* recvComm, const RecvArgs& args, void** request) = 0;
  virtual ncclResult_t test(void* request, int* done, int* sizes) = 0;

  CallMeter& meter() { return meter_; }

 private:
  CallMeter meter_;
};

}  // namespace weft::netdriver
