// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <thread>

#include "providers/ofi/compat.h"

// Closes an endpoint on a thread of its own. With the EFA provider, fi_close waits for every work that the
// card still tries to deliver. With a silent peer that takes as long as the card's own patience, and no
// caller can wait for that. A single endpoint at a time; the Queue owns it and its thread uses it.
namespace weft::ofi {

class EndpointCloser {
 public:
  EndpointCloser() = default;
  EndpointCloser(const EndpointCloser&) = delete;
  EndpointCloser& operator=(const EndpointCloser&) = delete;
  ~EndpointCloser() { finish(); }

  // Called only when none is being closed. Where the process gets no further thread, it closes before it
  // returns.
  void close(FidPtr<fid_ep> endpoint);
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  void finish();  // waits until the endpoint is closed

 private:
  std::thread thread_;
  std::atomic<bool> closed_{true};
};

}  // namespace weft::ofi
