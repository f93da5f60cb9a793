// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/system/driver/flow.h"

#include "tools/netdriver/log_sink.h"

namespace weft::system {

Flow::Flow(Run& run, const Comm& comm, bool receives)
    : run_(run), comm_(comm), receives_(receives), memory_(makeMemory(run, comm, kWindow * kBytes)) {}

ncclResult_t Flow::step() {
  if (const ncclResult_t result = postNext(); result != ncclSuccess) return result;
  void*& oldest = requests_[done_ % kWindow];
  if (oldest == nullptr) return ncclSuccess;
  int done = 0;
  int size = 0;
  const ncclResult_t result = comm_.net().test(oldest, &done, &size);
  if (result != ncclSuccess || done == 0) return result;
  if (receives_) run_.expect(firstDifference({slot(done_), kBytes}, done_) < 0, "wrong data");
  oldest = nullptr;
  ++done_;
  return ncclSuccess;
}

ncclResult_t Flow::postNext() {
  void*& next = requests_[posted_ % kWindow];
  if (next != nullptr || posted_ == limit_) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  if (receives_) {
    result =
        comm_.net().irecv(comm_.raw(), oneReceive(slot(posted_), kBytes, kTag, memory_.mhandle()), &next);
  } else {
    fill({slot(posted_), kBytes}, posted_);
    result = comm_.net().isend(comm_.raw(), {slot(posted_), kBytes, kTag, memory_.mhandle()}, &next);
  }
  if (next != nullptr) ++posted_;
  return result;
}

void expectMessage(Run& run, const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& line : netdriver::LogSink::instance().takeWarnings()) all += line + "\n";
  for (const std::string& part : parts)
    run.expect(all.find(part) != std::string::npos, "no message names '" + part + "'; it said: " + all);
}

}  // namespace weft::system
