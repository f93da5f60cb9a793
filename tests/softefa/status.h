// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

namespace softefa {

// The hardware's completion codes (efa_io_comp_status of rdma-core): what read_vendor_err gives.
enum class Status : uint32_t {
  ok = 0,
  flushed = 1,
  queuePairError = 2,
  unsupportedOperation = 3,
  badAddressHandle = 4,
  badLocalKey = 5,
  badLocalLength = 6,
  badRemoteAddress = 7,
  remoteAbort = 8,
  badQueuePair = 9,
  receiverNotReady = 10,
  badRemoteLength = 11,
  badRemoteStatus = 12,
  unresponsive = 13,
  unknownPeer = 14,
  unreachable = 15,
};

// The same as rdma-core's EFA provider tells its users. May be called from any thread.
ibv_wc_status verbsStatus(Status status);

}  // namespace softefa
