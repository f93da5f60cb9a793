// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/windows.h"

namespace weft::perf {

Result<std::shared_ptr<Windows>> Windows::open(const WindowsRequest& request) {
  if (request.table == nullptr)
    return Error(Code::unavailable, "one-sided operations",
                 "the plugin exports no ncclRmaPlugin_v13 to v16; measure sendrecv or pingpong with it");
  auto windows = std::make_shared<Windows>();
  windows->request_ = request;
  TRY(windows->words_,
      netdriver::HostBuffer::create(static_cast<size_t>(request.channels) * sizeof(uint64_t)));
  netdriver::RmaComm::Listening listening;
  TRY(request.onThread([&]() -> Status {
    TRY(windows->comm_, netdriver::RmaComm::create(*request.table, request.commId));
    TRY(listening, windows->comm_->listen(request.device));
    return {};
  }));
  TRY(auto handles, request.bootstrap->gatherValues(listening.handle));
  TRY(request.onThread([&] { return windows->connect(listening, handles); }));
  return windows;
}

Status Windows::connect(const netdriver::RmaComm::Listening& listening,
                        std::span<netdriver::Handle> handles) {
  TRY(comm_->connect(listening, handles, request_.bootstrap->rank(), request_.channels));
  TRY(input_, comm_->registerMemory(request_.input));
  TRY(output_, comm_->registerMemory(request_.output));
  TRY(signals_,
      comm_->registerMemory(words_.span(), NCCL_NET_MR_FLAG_FORCE_SO | NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET));
  return {};
}

}  // namespace weft::perf
