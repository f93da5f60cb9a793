// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <thread>

#include "providers/ofi/compat.h"

// Closes an endpoint on a thread of its own. Of the EFA provider, fi_close waits for every work that the card
// still tries to deliver; with a peer that is silent that is as long as the card's own patience, for which
// no caller can be kept waiting. A single endpoint at a time; used by one thread.
namespace weft::ofi {

class EndpointCloser {
 public:
  EndpointCloser() = default;
  EndpointCloser(const EndpointCloser&) = delete;
  EndpointCloser& operator=(const EndpointCloser&) = delete;
  ~EndpointCloser() { finish(); }

  // Only when none is being closed. Where the process may not have another thread it closes before it
  // returns.
  void close(FidPtr<fid_ep> endpoint);
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  void finish();  // waits until it is

 private:
  std::thread thread_;
  std::atomic<bool> closed_{true};
};

}  // namespace weft::ofi
