// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

// The only door to rdma-core's headers, version 32 or newer: struct ibv_gid_entry came with that version. The
// library is opened at run time and may be older, so nothing here may need a symbol of it. Posting and
// polling need none: they are inline functions of the header and go through the context's own table. Several
// other "functions" are macros around inline functions that do need a symbol; they are avoided.
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
inline int queryPort(ibv_context* context, uint8_t port, ibv_port_attr* out) {
  const verbs_context* table = __extension__ verbs_get_ctx_op(context, query_port);  // a macro of GNU C
  return table ? table->query_port(context, port, out, sizeof *out) : EOPNOTSUPP;
}

}  // namespace weft::verbs
