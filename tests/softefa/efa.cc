// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// libefa.so.1: the EFA-specific calls under their usual names. No rdma-core header is included for them:
// older ones do not declare all of them.
#include <cerrno>
#include <cstdint>

#include "tests/softefa/efa_abi.h"

using namespace softefa;

extern "C" {

int efadv_query_device(ibv_context* context, EfaDeviceAttr* attr, uint32_t size) {
  return softefa_query_device(context, attr, size);
}

int efadv_query_ah(ibv_ah* ah, EfaAhAttr* attr, uint32_t size) {
  return softefa_query_ah(ah, attr, size);
}

ibv_cq_ex* efadv_create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr, void*, uint32_t) {
  return softefa_create_cq(context, attr);
}

EfaCq* efadv_cq_from_ibv_cq_ex(ibv_cq_ex* cq) {
  return softefa_efa_cq(cq);
}

ibv_qp* efadv_create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr, EfaQpInitAttr* efa,
                           uint32_t size) {
  return softefa_create_qp(context, attr, efa, size);
}

ibv_qp* efadv_create_driver_qp(ibv_pd*, ibv_qp_init_attr*, uint32_t) {
  errno = EOPNOTSUPP;  // its send interface, ibv_post_send, is not here
  return nullptr;
}

// Which interconnects lead to a region: unknown, as on NICs that do not tell.
int efadv_query_mr(ibv_mr*, void*, uint32_t) {
  return EOPNOTSUPP;
}

// Callers that hear this go on through the verbs calls instead of writing to the hardware's queues
// themselves.
int efadv_query_qp_wqs(ibv_qp*, void*, void*, uint32_t) {
  return EOPNOTSUPP;
}
int efadv_query_cq(ibv_cq*, void*, uint32_t) {
  return EOPNOTSUPP;
}
}
