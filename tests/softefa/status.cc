// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/status.h"

namespace softefa {

ibv_wc_status verbsStatus(Status status) {
  switch (status) {
    case Status::ok:
      return IBV_WC_SUCCESS;
    case Status::flushed:
      return IBV_WC_WR_FLUSH_ERR;
    case Status::queuePairError:
    case Status::unsupportedOperation:
    case Status::badAddressHandle:
      return IBV_WC_LOC_QP_OP_ERR;
    case Status::badLocalKey:
      return IBV_WC_LOC_PROT_ERR;
    case Status::badLocalLength:
      return IBV_WC_LOC_LEN_ERR;
    case Status::badRemoteAddress:
      return IBV_WC_REM_ACCESS_ERR;
    case Status::remoteAbort:
      return IBV_WC_REM_ABORT_ERR;
    case Status::badQueuePair:
      return IBV_WC_REM_INV_RD_REQ_ERR;
    case Status::receiverNotReady:
      return IBV_WC_RNR_RETRY_EXC_ERR;
    case Status::badRemoteLength:
      return IBV_WC_REM_INV_REQ_ERR;
    case Status::badRemoteStatus:
      return IBV_WC_BAD_RESP_ERR;
    case Status::unresponsive:
    case Status::unreachable:
      return IBV_WC_RESP_TIMEOUT_ERR;
    case Status::unknownPeer:
      return IBV_WC_REM_OP_ERR;
  }
  return IBV_WC_GENERAL_ERR;
}

}  // namespace softefa
