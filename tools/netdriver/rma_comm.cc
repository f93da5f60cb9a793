// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/rma_comm.h"

namespace weft::netdriver {

namespace {

Status checkRma(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return {};
  return Error(Code::unavailable, "one-sided operations",
               std::string(call) + " returned " + resultName(result) + "; -v shows what the plugin says");
}

}  // namespace

Result<std::unique_ptr<RmaComm>> RmaComm::create(RmaTable& table, uint64_t commId) {
  void* context = nullptr;
  TRY(checkRma(table.init(&context, commId), "init"));
  return std::make_unique<RmaComm>(table, context);
}

Result<RmaComm::Listening> RmaComm::listen(int device) const {
  int count = 0;
  TRY(checkRma(table_.devices(&count), "devices"));
  if (device >= count)
    return Error(Code::unavailable, "one-sided operations",
                 "the plugin's table of them has " + std::to_string(count) + " devices, --device is " +
                     std::to_string(device) + "; -v shows what the plugin says");
  Listening listening;
  TRY(checkRma(table_.listen(context_, device, listening.handle.data(), &listening.raw), "listen"));
  return listening;
}

Status RmaComm::connect(const Listening& listening, std::span<Handle> handles, int rank, int contexts) {
  std::vector<void*> pointers;
  for (Handle& handle : handles) pointers.push_back(handle.data());
  const ncclResult_t result = table_.connect(context_, pointers.data(), static_cast<int>(pointers.size()),
                                             rank, listening.raw, &collComm_);
  table_.closeListen(listening.raw);
  TRY(checkRma(result, "connect"));
  return checkRma(table_.createContext(collComm_, contexts, &rmaContext_), "createContext");
}

Result<void*> RmaComm::registerMemory(std::span<std::byte> memory, uint64_t flags) {
  void* mhandle = nullptr;
  TRY(checkRma(table_.regMr(collComm_, memory.data(), memory.size(), flags, &mhandle), "regMrSym"));
  mhandles_.push_back(mhandle);
  return mhandle;
}

RmaComm::~RmaComm() {
  for (void* mhandle : mhandles_) table_.deregMr(collComm_, mhandle);
  if (rmaContext_ != nullptr) table_.destroyContext(rmaContext_);
  if (collComm_ != nullptr) table_.closeColl(collComm_);
  table_.finalize(context_);
}

}  // namespace weft::netdriver
