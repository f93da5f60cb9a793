// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/endpoint_closer.h"

#include "src/base/process.h"
#include "src/base/reserve.h"

// The thread that calls fi_close.
namespace weft::ofi {

void EndpointCloser::close(FidPtr<fid_ep> endpoint) {
  const MustNotFail closing;
  finish();
  closed_.store(false, std::memory_order_relaxed);
  fid_ep* raw = endpoint.get();
  auto thread = startThread("weft-ofi-close", [this, raw] {
    CloseFid()(raw);
    closed_.store(true, std::memory_order_release);
  });
  if (thread) {
    (void)endpoint.release();  // the thread's now
    thread_ = std::move(*thread);
  } else {
    endpoint.reset();
    closed_.store(true, std::memory_order_relaxed);
  }
}

void EndpointCloser::finish() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace weft::ofi
