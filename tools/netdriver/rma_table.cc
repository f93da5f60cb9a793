// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/rma_table.h"

#include <type_traits>

#include "tools/netdriver/log_sink.h"

// The four versions: what a table's own signatures take decides what is passed.
namespace weft::netdriver {

namespace {

template <class Table>
constexpr bool kIsOldest = std::is_same_v<Table, ncclRma_v13_t>;
template <class Table>
constexpr bool kHasHints = std::is_same_v<Table, ncclRma_v15_t> || std::is_same_v<Table, ncclRma_v16_t>;

template <class Table>
class OneVersion final : public RmaTable {
 public:
  OneVersion(const Table* table, int version) : table_(table), version_(version) {}

  int version() const override { return version_; }
  ncclResult_t init(void** context, uint64_t commId) override {
    return table_->init(context, commId, &LogSink::callback);
  }
  ncclResult_t finalize(void* context) override { return table_->finalize(context); }
  ncclResult_t devices(int* count) override { return table_->devices(count); }
  ncclResult_t listen(void* context, int device, void* handle, void** listenComm) override {
    return table_->listen(context, device, handle, listenComm);
  }
  ncclResult_t connect(void* context, void** handles, int ranks, int rank, void* listenComm,
                       void** collComm) override {
    return table_->connect(context, handles, ranks, rank, listenComm, collComm);
  }
  ncclResult_t closeListen(void* listenComm) override { return table_->closeListen(listenComm); }
  ncclResult_t closeColl(void* collComm) override { return table_->closeColl(collComm); }

  ncclResult_t createContext(void* collComm, int contexts, void** rmaContext) override {
    if constexpr (kIsOldest<Table>) {
      ncclRmaConfig_v13_t config{0, 0, contexts, 0, NCCL_NET_TRAFFIC_CLASS_UNDEF};
      ncclNetDeviceHandle_v11_t* none = nullptr;
      return table_->createContext(collComm, &config, rmaContext, &none);
    } else {
      ncclRmaConfig_v14_t config{contexts, NCCL_NET_TRAFFIC_CLASS_UNDEF, 1};
      return table_->createContext(collComm, &config, rmaContext);
    }
  }
  ncclResult_t destroyContext(void* rmaContext) override { return table_->destroyContext(rmaContext); }

  ncclResult_t regMr(void* collComm, void* data, size_t bytes, uint64_t flags, void** mhandle) override {
    if constexpr (kIsOldest<Table>) {
      void* ofKernels = nullptr;
      return table_->regMrSym(collComm, data, bytes, NCCL_PTR_HOST, flags, mhandle, &ofKernels);
    } else {
      return table_->regMrSym(collComm, data, bytes, NCCL_PTR_HOST, flags, mhandle);
    }
  }
  ncclResult_t deregMr(void* collComm, void* mhandle) override {
    return table_->deregMrSym(collComm, mhandle);
  }

  ncclResult_t put(void* rmaContext, const RmaMove& m, void** request) override {
    return call(table_->iput, m, request, rmaContext, m.context, m.localOffset, m.local, m.bytes,
                m.remoteOffset, m.remote, m.rank);
  }
  ncclResult_t putSignal(void* rmaContext, const RmaMove& m, const RmaSignal& s, void** request) override {
    if constexpr (kIsOldest<Table>)
      return table_->iputSignal(rmaContext, m.context, m.localOffset, m.local, m.bytes, m.remoteOffset,
                                m.remote, m.rank, s.offset, s.mhandle, s.value, s.op, request);
    else
      return call(table_->iputSignal, m, request, rmaContext, m.context, m.localOffset, m.local, m.bytes,
                  m.remoteOffset, m.remote, m.rank, s.offset, s.mhandle, s.value, s.op, s.strong);
  }
  ncclResult_t get(void* rmaContext, const RmaMove& m, void** request) override {
    return call(table_->iget, m, request, rmaContext, m.context, m.remoteOffset, m.remote, m.bytes,
                m.localOffset, m.local, m.rank);
  }
  ncclResult_t test(void* collComm, void* request, int* done) override {
    return table_->test(collComm, request, done);
  }
  ncclResult_t progress(void* rmaContext) override {
    if constexpr (kIsOldest<Table>)
      return table_->ginProgress ? table_->ginProgress(rmaContext) : ncclSuccess;
    else
      return table_->rmaProgress ? table_->rmaProgress(rmaContext) : ncclSuccess;
  }

 private:
  // The hint of the newer tables comes behind all else but the request.
  template <class Entry, class... Arguments>
  static ncclResult_t call(Entry entry, const RmaMove& move, void** request, Arguments... arguments) {
    if constexpr (kHasHints<Table>)
      return entry(arguments..., move.more ? NCCL_RMA_OPT_AGGREGATE_REQUESTS : 0, request);
    else
      return entry(arguments..., request);
  }

  const Table* table_;
  int version_;
};

template <class Table>
std::unique_ptr<RmaTable> made(const void* symbol, int version) {
  return std::make_unique<OneVersion<Table>>(static_cast<const Table*>(symbol), version);
}

}  // namespace

std::unique_ptr<RmaTable> makeRmaTable(const void* symbol, int version) {
  switch (version) {
    case 16:
      return made<ncclRma_v16_t>(symbol, version);
    case 15:
      return made<ncclRma_v15_t>(symbol, version);
    case 14:
      return made<ncclRma_v14_t>(symbol, version);
    default:
      return made<ncclRma_v13_t>(symbol, version);
  }
}

}  // namespace weft::netdriver
