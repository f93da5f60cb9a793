// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <thread>

#include "nccl/rma.h"
#include "tests/abi/driver.h"

// One version's table of one-sided operations, driven in NCCL's order, with the differences between the
// versions hidden. Ranks are threads of this process.
namespace weft::abi {

template <class Table>
constexpr int kRmaVersion = 0;
template <>
inline constexpr int kRmaVersion<ncclRma_v13_t> = 13;
template <>
inline constexpr int kRmaVersion<ncclRma_v14_t> = 14;
template <>
inline constexpr int kRmaVersion<ncclRma_v15_t> = 15;
template <>
inline constexpr int kRmaVersion<ncclRma_v16_t> = 16;

#define ALL_RMA_TABLES ncclRma_v13_t, ncclRma_v14_t, ncclRma_v15_t, ncclRma_v16_t

// The arguments of a put; `signalMhandle` null: no signal.
struct PutCall {
  uint64_t sourceOffset = 0;
  void* sourceMhandle = nullptr;
  size_t bytes = 0;
  uint64_t targetOffset = 0;
  void* targetMhandle = nullptr;
  uint32_t rank = 0;
  int context = 0;
  uint64_t signalOffset = 0;
  void* signalMhandle = nullptr;
  uint64_t signalValue = 1;
  uint32_t signalOp = NCCL_NET_SIGNAL_OP_ADD;
};

template <class Table>
class RmaDriver {
 public:
  explicit RmaDriver(const char* provider = "loop") {
    setenv("WEFT_PROVIDER", provider, 1);
    setenv("WEFT_LOOP_RAILS", "1", 1);
    forgetLines();
    library_ = openPlugin();
    REQUIRE(library_);
    const std::string symbol = "ncclRmaPlugin_v" + std::to_string(kRmaVersion<Table>);
    table = static_cast<const Table*>(dlsym(library_, symbol.c_str()));
    REQUIRE(table);
  }
  ~RmaDriver() { dlclose(library_); }
  RmaDriver(const RmaDriver&) = delete;
  RmaDriver& operator=(const RmaDriver&) = delete;

  ncclResult_t createContext(void* comm, int contexts, void** out) const {
    if constexpr (kRmaVersion<Table> == 13) {
      ncclRmaConfig_v13_t config{0, 0, contexts, 0, NCCL_NET_TRAFFIC_CLASS_UNDEF};
      return table->createContext(comm, &config, out, nullptr);  // as NCCL's adapter does
    } else {
      ncclRmaConfig_v14_t config{contexts, NCCL_NET_TRAFFIC_CLASS_UNDEF, 1};
      return table->createContext(comm, &config, out);
    }
  }
  ncclResult_t regMrSym(void* comm, void* data, size_t bytes, uint64_t flags, void** mhandle) const {
    if constexpr (kRmaVersion<Table> == 13) {
      void* ginHandle = nullptr;
      const ncclResult_t result =
          table->regMrSym(comm, data, bytes, NCCL_PTR_HOST, flags, mhandle, &ginHandle);
      return result == ncclSuccess && ginHandle != *mhandle ? ncclInternalError : result;
    } else {
      return table->regMrSym(comm, data, bytes, NCCL_PTR_HOST, flags, mhandle);
    }
  }
  ncclResult_t put(void* context, const PutCall& call, void** request) const {
    if (call.signalMhandle) return putSignal(context, call, request);
    if constexpr (kRmaVersion<Table> >= 15)
      return table->iput(context, call.context, call.sourceOffset, call.sourceMhandle, call.bytes,
                         call.targetOffset, call.targetMhandle, call.rank, 0, request);
    else
      return table->iput(context, call.context, call.sourceOffset, call.sourceMhandle, call.bytes,
                         call.targetOffset, call.targetMhandle, call.rank, request);
  }
  ncclResult_t get(void* context, const PutCall& call, void** request) const {
    if constexpr (kRmaVersion<Table> >= 15)
      return table->iget(context, call.context, call.targetOffset, call.targetMhandle, call.bytes,
                         call.sourceOffset, call.sourceMhandle, call.rank, 0, request);
    else
      return table->iget(context, call.context, call.targetOffset, call.targetMhandle, call.bytes,
                         call.sourceOffset, call.sourceMhandle, call.rank, request);
  }
  ncclResult_t progress(void* context) const {
    if constexpr (kRmaVersion<Table> == 13)
      return table->ginProgress(context);
    else
      return table->rmaProgress(context);
  }

  const Table* table = nullptr;

 private:
  ncclResult_t putSignal(void* context, const PutCall& call, void** request) const {
    if constexpr (kRmaVersion<Table> >= 15)
      return table->iputSignal(context, call.context, call.sourceOffset, call.sourceMhandle, call.bytes,
                               call.targetOffset, call.targetMhandle, call.rank, call.signalOffset,
                               call.signalMhandle, call.signalValue, call.signalOp, true, 0, request);
    else if constexpr (kRmaVersion<Table> == 14)
      return table->iputSignal(context, call.context, call.sourceOffset, call.sourceMhandle, call.bytes,
                               call.targetOffset, call.targetMhandle, call.rank, call.signalOffset,
                               call.signalMhandle, call.signalValue, call.signalOp, true, request);
    else
      return table->iputSignal(context, call.context, call.sourceOffset, call.sourceMhandle, call.bytes,
                               call.targetOffset, call.targetMhandle, call.rank, call.signalOffset,
                               call.signalMhandle, call.signalValue, call.signalOp, request);
  }

  void* library_ = nullptr;
};

}  // namespace weft::abi
