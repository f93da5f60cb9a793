// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/coll_net.h"

#include "tools/netdriver/log_sink.h"

namespace weft::netdriver {

namespace {

Status checkCall(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return {};
  return Error(Code::unavailable, "collective offload",
               std::string(call) + " returned " + resultName(result) + "; -v shows what the plugin says");
}

}  // namespace

Result<std::unique_ptr<CollContext>> CollContext::create(const CollTable& table, uint64_t commId) {
  void* raw = nullptr;
  TRY(checkCall(table.init(&raw, commId, &LogSink::callback), "init"));
  return std::make_unique<CollContext>(table, raw);
}

Result<CollComm::Listening> CollComm::listen(const CollContext& context, int device) {
  int count = 0;
  TRY(checkCall(context.table().devices(&count), "devices"));
  if (device >= count)
    return Error(Code::unavailable, "collective offload",
                 "the plugin offers none; set WEFT_COLLNET=peers, or tree with WEFT_AGGD, on all ranks");
  Listening listening;
  TRY(checkCall(context.table().listen(context.raw(), device, listening.handle.data(), &listening.raw),
                "listen"));
  return listening;
}

Result<std::unique_ptr<CollComm>> CollComm::connect(const CollContext& context, const Listening& listening,
                                                    std::span<Handle> handles, int rank) {
  std::vector<void*> pointers;
  for (Handle& handle : handles) pointers.push_back(handle.data());
  void* raw = nullptr;
  const ncclResult_t result =
      context.table().connect(pointers.data(), static_cast<int>(pointers.size()), rank, listening.raw, &raw);
  context.table().closeListen(listening.raw);
  TRY(checkCall(result, "connect"));
  return std::make_unique<CollComm>(context.table(), raw);
}

CollComm::~CollComm() {
  if (mhandle_ != nullptr) table_.deregMr(raw_, mhandle_);
  table_.closeColl(raw_);
}

Status CollComm::registerBuffer(size_t bytes) {
  TRY(buffer_, HostBuffer::create(bytes));
  buffer_.populate(0, bytes);
  return checkCall(table_.regMr(raw_, buffer_.data(), bytes, NCCL_PTR_HOST, &mhandle_), "regMr");
}

}  // namespace weft::netdriver
