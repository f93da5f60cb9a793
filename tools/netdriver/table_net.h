// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "tools/netdriver/log_sink.h"
#include "tools/netdriver/net.h"
#include "tools/netdriver/profiler_sink.h"

// Net over one table type, written once for all versions: what a table has decides what is called. Made by
// Library only. Threads: the mutex guards the once-a-process init of tables before v11.
namespace weft::netdriver {

constexpr size_t kMaxOldMessage = size_t{1} << 30;  // NCCL refuses more over tables that size messages by int

template <class Table>
concept HasContext = requires(Table t) {
  t.finalize;
};

// The properties struct of a table is the second parameter of its getProperties.
template <class P>
P propertiesOf(ncclResult_t (*)(int, P*));
// And its list of members the second of its makeVDevice.
template <class M>
M membersOf(ncclResult_t (*)(int*, M*));

template <class Table>
class TableNet final : public Net {
 public:
  TableNet(const Table* table, int abi) : table_(table), abi_(abi) {}

  int abi() const override { return abi_; }
  const char* name() const override { return table_->name; }

  bool has(Call call) const override {
    if (call == Call::finalize) return HasContext<Table>;
    if (call == Call::makeVDevice) return requires(Table t) {
        t.makeVDevice;
      };
    if (call != Call::setNetAttr) return true;
    if constexpr (requires(Table t) { t.setNetAttr; }) return table_->setNetAttr != nullptr;
    return false;
  }

  ncclResult_t init(void** context, uint64_t commId, int trafficClass) override {
    return meter().measure(Call::init, [&] { return initTable(context, commId, trafficClass); });
  }

  ncclResult_t finalize(void* context) override {
    if constexpr (HasContext<Table>) {
      return meter().measure(Call::finalize, [&] { return table_->finalize(context); });
    } else {
      std::lock_guard lock(mutex_);
      std::erase_if(configs_, [&](const auto& config) { return config.get() == context; });
      return ncclSuccess;
    }
  }

  using Net::setNetAttr;
  ncclResult_t setNetAttr(void* context, int peers, int flowsPerPeer, uint32_t operations) override {
    if constexpr (requires(Table t) { t.setNetAttr; }) {
      if (table_->setNetAttr == nullptr) return ncclSuccess;
      const ncclNetCommAttr_v11_t direction{peers, 1, flowsPerPeer, 1};
      const auto undefined = static_cast<uint32_t>(NCCL_NET_ATTR_UNDEF);
      ncclNetAttr_v11_t attr{direction, direction, operations, undefined, undefined};
      return meter().measure(Call::setNetAttr, [&] { return table_->setNetAttr(context, &attr); });
    }
    return ncclSuccess;
  }

  ncclResult_t devices(int* count) override {
    return meter().measure(Call::devices, [&] { return table_->devices(count); });
  }

  ncclResult_t getProperties(int device, Properties* properties, uint8_t fill) override {
    decltype(propertiesOf(table_->getProperties)) raw;
    std::memset(&raw, fill, sizeof(raw));
    const ncclResult_t result =
        meter().measure(Call::getProperties, [&] { return table_->getProperties(device, &raw); });
    if (result == ncclSuccess) copyProperties(raw, properties);
    return result;
  }

  ncclResult_t makeVDevice(std::span<const int> members, int* device) override {
    if constexpr (requires(Table t) { t.makeVDevice; }) {
      decltype(membersOf(table_->makeVDevice)) raw{};
      if (members.size() > std::size(raw.devs)) return ncclInvalidUsage;
      raw.ndevs = static_cast<int>(members.size());
      std::copy(members.begin(), members.end(), raw.devs);
      return meter().measure(Call::makeVDevice, [&] { return table_->makeVDevice(device, &raw); });
    }
    return ncclInvalidUsage;
  }

  ncclResult_t listen(void* context, int device, void* handle, void** listenComm) override {
    return meter().measure(Call::listen, [&] {
      if constexpr (HasContext<Table>) {
        return table_->listen(context, device, handle, listenComm);
      } else {
        return table_->listen(device, handle, listenComm);
      }
    });
  }

  ncclResult_t connect(void* context, int device, void* handle, void** sendComm) override {
    return meter().measure(Call::connect, [&] { return connectTable(context, device, handle, sendComm); });
  }

  ncclResult_t accept(void* listenComm, void** recvComm) override {
    return meter().measure(Call::accept, [&] {
      if constexpr (requires(void** comm) { table_->accept(nullptr, comm); }) {
        return table_->accept(listenComm, recvComm);
      } else {
        ncclNetDeviceHandle_v7_t* none = nullptr;
        return table_->accept(listenComm, recvComm, &none);
      }
    });
  }

  ncclResult_t closeSend(void* sendComm) override {
    return meter().measure(Call::closeSend, [&] { return table_->closeSend(sendComm); });
  }
  ncclResult_t closeRecv(void* recvComm) override {
    return meter().measure(Call::closeRecv, [&] { return table_->closeRecv(recvComm); });
  }
  ncclResult_t closeListen(void* listenComm) override {
    return meter().measure(Call::closeListen, [&] { return table_->closeListen(listenComm); });
  }

  ncclResult_t regMrAs(int type, void* comm, void* data, size_t size, void** mhandle) override {
    return meter().measure(Call::regMr, [&]() -> ncclResult_t {
      if constexpr (requires(ncclNet_v6_t t) { t.regMr = table_->regMr; }) {
        if (size >= size_t{1} << 31) return ncclInternalError;
        return table_->regMr(comm, data, static_cast<int>(size), type, mhandle);
      } else {
        return table_->regMr(comm, data, size, type, mhandle);
      }
    });
  }
  ncclResult_t regMrDmaBuf(void* comm, void* data, size_t size, uint64_t offset, int fd,
                           void** mhandle) override {
    return meter().measure(Call::regMr, [&] {
      return table_->regMrDmaBuf(comm, data, size, NCCL_PTR_CUDA, offset, fd, mhandle);
    });
  }
  ncclResult_t deregMr(void* comm, void* mhandle) override {
    return meter().measure(Call::deregMr, [&] { return table_->deregMr(comm, mhandle); });
  }

  ncclResult_t isend(void* sendComm, const SendArgs& args, void** request) override {
    return meter().measure(Call::isend, [&] { return isendTable(sendComm, args, request); });
  }
  ncclResult_t irecv(void* recvComm, const RecvArgs& args, void** request) override {
    return meter().measure(Call::irecv, [&] { return irecvTable(recvComm, args, request); });
  }

  ncclResult_t iflush(void* recvComm, const RecvArgs& args, void** request) override {
    RecvArgs copy = args;
    std::array<int, kMaxGroup> sizes{};
    std::transform(copy.sizes.begin(), copy.sizes.end(), sizes.begin(), [](size_t s) { return int(s); });
    return meter().measure(Call::iflush, [&] {
      return table_->iflush(recvComm, copy.n, copy.data.data(), sizes.data(), copy.mhandles.data(), request);
    });
  }

  ncclResult_t test(void* request, int* done, int* sizes) override {
    return meter().measure(Call::test, [&] { return table_->test(request, done, sizes); });
  }

 private:
  // NCCL initialises a table before v11 once a process and keeps each communicator's configuration itself.
  ncclResult_t initTable(void** context, uint64_t commId, int trafficClass) {
    if constexpr (HasContext<Table>) {
      ncclNetCommConfig_v10_t config{trafficClass};
      return table_->init(context, commId, &config, &LogSink::callback, &ProfilerSink::callback);
    } else {
      std::lock_guard lock(mutex_);
      if (configs_.empty()) {
        const ncclResult_t result = initOnce();
        if (result != ncclSuccess) return result;
      }
      configs_.push_back(std::make_unique<ncclNetCommConfig_v10_t>(ncclNetCommConfig_v10_t{trafficClass}));
      *context = configs_.back().get();
      return ncclSuccess;
    }
  }

  ncclResult_t initOnce() {
    if constexpr (requires { table_->init(&LogSink::callback); }) {
      return table_->init(&LogSink::callback);
    } else if constexpr (!HasContext<Table>) {
      return table_->init(&LogSink::callback, &ProfilerSink::callback);
    }
    return ncclInternalError;
  }

  ncclResult_t connectTable(void* context, int device, void* handle, void** sendComm) {
    ncclNetDeviceHandle_v7_t* none = nullptr;
    if constexpr (HasContext<Table>) {
      return table_->connect(context, device, handle, sendComm, &none);
    } else if constexpr (requires(ncclNetCommConfig_v10_t * c) {
                           table_->connect(device, c, handle, sendComm, &none);
                         }) {
      return table_->connect(device, static_cast<ncclNetCommConfig_v10_t*>(context), handle, sendComm, &none);
    } else if constexpr (requires { table_->connect(device, handle, sendComm, &none); }) {
      return table_->connect(device, handle, sendComm, &none);
    } else {
      return table_->connect(device, handle, sendComm);
    }
  }

  ncclResult_t isendTable(void* comm, const SendArgs& a, void** request) {
    if constexpr (requires(ncclNet_v12_t t) { t.isend = table_->isend; }) {
      return table_->isend(comm, a.data, a.size, a.tag, a.mhandle, a.phandle, request);
    } else if constexpr (requires(ncclNet_v9_t t) { t.isend = table_->isend; }) {
      return table_->isend(comm, a.data, a.size, a.tag, a.mhandle, request);
    } else {
      if (a.size > kMaxOldMessage) return ncclInternalError;
      return table_->isend(comm, a.data, static_cast<int>(a.size), a.tag, a.mhandle, request);
    }
  }

  // The arrays go in as copies: a plugin that keeps a pointer to them reads the caller's dead stack.
  ncclResult_t irecvTable(void* comm, const RecvArgs& args, void** request) {
    RecvArgs a = args;
    if constexpr (requires(ncclNet_v12_t t) { t.irecv = table_->irecv; }) {
      void** phandles = a.nullPhandles ? nullptr : a.phandles.data();
      return table_->irecv(comm, a.n, a.data.data(), a.sizes.data(), a.tags.data(), a.mhandles.data(),
                           phandles, request);
    } else if constexpr (requires(ncclNet_v9_t t) { t.irecv = table_->irecv; }) {
      return table_->irecv(comm, a.n, a.data.data(), a.sizes.data(), a.tags.data(), a.mhandles.data(),
                           request);
    } else {
      return irecvByInt(comm, a, request);
    }
  }

  ncclResult_t irecvByInt(void* comm, RecvArgs& a, void** request) {
    std::array<int, kMaxGroup> sizes{};
    for (size_t i = 0; i < static_cast<size_t>(a.n); ++i) {
      if (a.sizes[i] > kMaxOldMessage) return ncclInternalError;
      sizes[i] = static_cast<int>(a.sizes[i]);
    }
    // NCCL's adapters drop the hint for tables that never knew it.
    if (*request == reinterpret_cast<void*>(NCCL_NET_OPTIONAL_RECV_COMPLETION)) *request = nullptr;
    if constexpr (requires(ncclNet_v6_t t) { t.irecv = table_->irecv; }) {
      return table_->irecv(comm, a.n, a.data.data(), sizes.data(), a.tags.data(), a.mhandles.data(), request);
    }
    return ncclInternalError;
  }

  template <class Raw>
  static void copyProperties(const Raw& raw, Properties* to) {
    *to = Properties{};
    to->name = raw.name != nullptr ? raw.name : "";
    to->pciPath = raw.pciPath != nullptr ? raw.pciPath : "";
    to->guid = raw.guid;
    to->ptrSupport = raw.ptrSupport;
    to->speedMbps = raw.speed;
    to->port = raw.port;
    to->latencyUs = raw.latency;
    to->maxComms = raw.maxComms;
    to->maxRecvs = raw.maxRecvs;
    if constexpr (requires { raw.netDeviceType; }) {
      to->netDeviceType = raw.netDeviceType;
      to->netDeviceVersion = raw.netDeviceVersion;
    }
    if constexpr (requires { raw.regIsGlobal; }) to->regIsGlobal = raw.regIsGlobal;
    if constexpr (requires { raw.vProps; }) {
      to->forceFlush = raw.forceFlush;
      to->virtualMembers = raw.vProps.ndevs;
      to->maxP2pBytes = raw.maxP2pBytes;
      to->maxCollBytes = raw.maxCollBytes;
    }
    if constexpr (requires { raw.maxMultiRequestSize; }) to->maxMultiRequestSize = raw.maxMultiRequestSize;
    if constexpr (requires { raw.railId; }) {
      to->railId = raw.railId;
      to->planeId = raw.planeId;
    }
  }

  const Table* table_;
  int abi_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ncclNetCommConfig_v10_t>> configs_;
};

}  // namespace weft::netdriver
