// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <infiniband/verbs.h>

#include "tests/softefa/completion_queue.h"
#include "tests/softefa/identity.h"

namespace softefa {

inline constexpr uint32_t kMaxSendSges = 2;
inline constexpr uint32_t kMaxReceiveSges = 3;
inline constexpr uint32_t kMaxInline = 32;
inline constexpr uint64_t kMaxRdma = 1ULL << 30;
inline constexpr uint32_t kMaxSends = 4096;
inline constexpr uint32_t kMaxReceives = 32768;
inline constexpr uint32_t kGrhBytes = 40;  // room before the payload that a datagram's receive leaves
inline constexpr unsigned kRetryForever = 7;

enum class Operation { send, write, read };

// One piece of posted work.
struct WorkRequest {
  uint64_t wrId = 0;
  Operation operation = Operation::send;
  bool hasImm = false;
  bool isInline = false;
  bool handleKnown = false;  // the address handle existed when it was named
  uint32_t imm = 0;
  uint32_t rkey = 0;
  uint64_t remoteAddress = 0;
  Gid to;
  uint16_t handle = kNoAddressHandle;
  uint32_t remoteQpn = 0;
  uint32_t remoteQkey = 0;
  uint64_t length = 0;
  uint32_t sgeCount = 0;
  std::array<ibv_sge, kMaxReceiveSges> sges{};
  std::array<std::byte, kMaxInline> inlineData{};
};

struct ReceiveWork {
  uint64_t wrId = 0;
  uint32_t sgeCount = 0;
  std::array<ibv_sge, kMaxReceiveSges> sges{};
};

// A queue pair without its verbs clothes. Guarded by the device's lock.
struct QueuePair {
  uint32_t qpn = 0;
  bool datagrams = false;    // UD, not SRD
  bool unsolicited = false;  // notifications of writes take no posted receive
  ibv_qp_state state = IBV_QPS_RESET;
  uint32_t qkey = 0;
  unsigned rnrRetry = kRetryForever;
  uint32_t maxSends = 0;
  uint32_t maxReceives = 0;
  const void* domain = nullptr;
  CompletionQueue* sendCq = nullptr;
  CompletionQueue* receiveCq = nullptr;
  std::deque<ReceiveWork> receives;
  std::shared_ptr<QueuePairLife> life = std::make_shared<QueuePairLife>();
  uint32_t youngestDone = 0;  // message id, to see completions out of order

  bool hears() const { return state == IBV_QPS_RTR || state == IBV_QPS_RTS; }
};

}  // namespace softefa
