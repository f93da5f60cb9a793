// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

// The EFA-specific calls, and their structures as the newest rdma-core has them. Older headers lack fields
// and constants that newer callers use, so the stand-in has its own; each call says how many bytes its caller
// knows. libefa.so.1 exports the calls under their usual names, libibverbs.so.1 implements them.
namespace softefa {

inline constexpr uint32_t kCapRdmaRead = 1, kCapRnrRetry = 2, kCapCqWithSgid = 4, kCapRdmaWrite = 8,
                          kCapUnsolicitedWriteReceive = 16;
inline constexpr uint16_t kQpUnsolicitedWriteReceive = 1;

struct EfaDeviceAttr {
  uint64_t compMask;
  uint32_t maxSqWr;
  uint32_t maxRqWr;
  uint16_t maxSqSge;
  uint16_t maxRqSge;
  uint16_t inlineBufSize;
  uint8_t reserved[2];
  uint32_t deviceCaps;
  uint32_t maxRdmaSize;
};

struct EfaAhAttr {
  uint64_t compMask;
  uint16_t ahn;
  uint8_t reserved[6];
};

struct EfaQpInitAttr {
  uint64_t compMask;
  uint32_t driverQpType;
  uint16_t flags;
  uint8_t serviceLevel;
  uint8_t reserved;
};

struct EfaCq {
  uint64_t compMask;
  int (*readSgid)(EfaCq* cq, ibv_gid* sgid);
  bool (*isUnsolicited)(EfaCq* cq);
};

}  // namespace softefa

extern "C" {
int softefa_query_device(ibv_context* context, softefa::EfaDeviceAttr* attr, uint32_t size);
int softefa_query_ah(ibv_ah* ah, softefa::EfaAhAttr* attr, uint32_t size);
ibv_cq_ex* softefa_create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr);
softefa::EfaCq* softefa_efa_cq(ibv_cq_ex* cq);
ibv_qp* softefa_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr, const softefa::EfaQpInitAttr* efa,
                          uint32_t size);
}
