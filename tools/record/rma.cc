// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/record/rma.h"

#include <memory>

#include "tools/record/timed.h"

namespace weft::record {

namespace {

using trace::Kind;
namespace at = trace::at;

}  // namespace

ncclResult_t recordMove(const RmaMove& move, void** request, const Forward& forward) {
  auto* context = static_cast<RmaContext*>(move.context);
  if (context == nullptr || request == nullptr) return ncclInvalidArgument;
  *request = nullptr;
  const Timed call = timed([&] { return forward(context->real); });
  const bool posted = call.result == ncclSuccess && *request != nullptr;
  const uint64_t number = posted ? recorder().newRequest() : 0;
  trace::Event& event = eventOf(move.kind, call);
  event.values[at::kComm] = context->comm->number;
  event.values[at::kRequest] = number;
  event.values[at::kRmaContext] = static_cast<uint64_t>(move.contextNumber);
  event.values[at::kRmaRank] = move.rank;
  event.values[at::kRmaHints] = move.hints;
  if (move.op != 0) {
    const trace::Part signal = move.signal.part(0);
    event.values[at::kSignalMemory] = signal.memory;
    event.values[at::kSignalOffset] = signal.offset;
    event.values[at::kSignalValue] = move.op == NCCL_NET_SIGNAL_OP_INC ? 1 : move.value;
    event.values[at::kSignalStrong] = move.strong ? 1 : 0;
  }
  event.parts.push_back(move.local.part(move.bytes));
  event.parts.push_back(move.remote.part(move.bytes));
  recorder().add();
  if (posted) *request = context->comm->newRequest(*request, 0, number);
  return call.result;
}

ncclResult_t recordRmaInit(int version, void** context, uint64_t commId,
                           const std::function<ncclResult_t(void** made)>& forward) {
  void* made = nullptr;
  const Timed call = timed([&] { return forward(&made); });
  *context = nullptr;
  trace::Event& event = eventOf(Kind::rmaInit, call);
  if (call.result == ncclSuccess) {
    auto own = std::make_unique<Context>();
    own->real = made;
    own->number = recorder().newContext();
    event.values[at::kContext] = own->number;
    *context = own.release();
  }
  event.values[at::kCommId] = commId;
  event.values[at::kRmaVersion] = static_cast<uint64_t>(version);
  recorder().addAndFlush();
  return call.result;
}

ncclResult_t recordCreateContext(void* collComm, int contexts, void** rmaContext, const ForwardTo& forward) {
  auto* comm = static_cast<Comm*>(collComm);
  if (comm == nullptr || rmaContext == nullptr) return ncclInvalidArgument;
  void* made = nullptr;
  const Timed call = timed([&] { return forward(comm->real, &made); });
  *rmaContext = nullptr;
  trace::Event& event = eventOf(Kind::createContext, call);
  event.values[at::kComm] = comm->number;
  event.values[at::kRmaContexts] = static_cast<uint64_t>(contexts);
  if (call.result == ncclSuccess) {
    auto own = std::make_unique<RmaContext>(RmaContext{made, comm, recorder().newContext()});
    event.values[at::kRmaMade] = own->number;
    *rmaContext = own.release();
  }
  recorder().addAndFlush();
  return call.result;
}

ncclResult_t recordDestroyContext(void* rmaContext, const Forward& forward) {
  const std::unique_ptr<RmaContext> own(static_cast<RmaContext*>(rmaContext));
  const Timed call = timed([&] { return forward(own ? own->real : nullptr); });
  if (!own) return call.result;
  trace::Event& event = eventOf(Kind::destroyContext, call);
  event.values[at::kComm] = own->comm->number;
  event.values[at::kRmaMade] = own->number;
  recorder().addAndFlush();
  return call.result;
}

ncclResult_t recordWindow(const Registered& what, uint64_t flags, void** mhandle, const ForwardTo& forward) {
  const auto* comm = static_cast<const Comm*>(what.comm);
  if (comm == nullptr || mhandle == nullptr) return ncclInvalidArgument;
  void* made = nullptr;
  const Timed call = timed([&] { return forward(comm->real, &made); });
  const auto address = reinterpret_cast<uintptr_t>(what.data);
  *mhandle = nullptr;
  trace::Event& event = eventOf(Kind::regMrSym, call);
  event.values[at::kComm] = comm->number;
  if (call.result == ncclSuccess) {
    auto own = std::make_unique<Memory>(Memory{made, recorder().newMemory(), address});
    event.values[at::kMemory] = own->number;
    *mhandle = own.release();
  }
  event.values[at::kAddress] = address;
  event.values[at::kBytes] = what.bytes;
  event.values[at::kType] = static_cast<uint64_t>(what.type);
  event.values[at::kWindowFlags] = flags;
  event.values[at::kWindowByDmaBuf] = what.kind == Kind::regMrDmaBuf ? 1 : 0;
  recorder().add();
  return call.result;
}

}  // namespace weft::record
