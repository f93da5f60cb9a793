// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

// The only door to rdma-core's headers, version 32 or newer: struct ibv_gid_entry came with that version. The
// library is opened at run time and may be older, so nothing here may need a symbol of it. Posting and
// polling need none: they are inline functions of the header and go through the context's own table. Several
// other "functions" are macros around inline functions that do need a symbol; they are avoided.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include <infiniband/verbs.h>

namespace weft::verbs {

// Owns an object of libibverbs. The objects that it was made on have to outlive it.
template <class T>
using Handle = std::unique_ptr<T, int (*)(T*)>;

// struct ibv_ece with names of ours; the layout is the same.
struct Ece {
  uint32_t vendor = 0;   // 0: none
  uint32_t options = 0;  // in the vendor's own layout
  uint32_t reserved = 0;
};

// The header's ibv_query_port falls back to a symbol. Every library since 2018 fills the table instead.
// `speed`: of a lane of the port, as active_speed has it; newer headers have it once more where there is room
// for XDR and what follows, and a library that does not know of that leaves it 0.
inline int queryPort(ibv_context* context, uint8_t port, ibv_port_attr* out, uint32_t* speed) {
  constexpr size_t kSpeedAt = 52;                                                    // of active_speed_ex
  const verbs_context* table = __extension__ verbs_get_ctx_op(context, query_port);  // a macro of GNU C
  if (!table) return EOPNOTSUPP;
  alignas(ibv_port_attr) std::array<std::byte, 256> newest{};
  const size_t bytes = std::max(sizeof(ibv_port_attr), kSpeedAt + sizeof *speed);
  const int code = table->query_port(context, port, reinterpret_cast<ibv_port_attr*>(newest.data()), bytes);
  std::memcpy(out, newest.data(), sizeof *out);
  std::memcpy(speed, newest.data() + kSpeedAt, sizeof *speed);
  if (*speed == 0) *speed = out->active_speed;
  return code;
}

}  // namespace weft::verbs
