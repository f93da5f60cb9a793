// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <netinet/in.h>

#include "nccl/types.h"
#include "src/base/fd.h"

// How two processes find each other: listen fills a handle, connect carries its cookie, accept takes only who
// has it. Nothing waits: what is not there yet is empty, and is asked for again. Each is used by one thread.
namespace weft::baseline {

struct Handle {
  sockaddr_in address{};
  uint64_t cookie = 0;
  class Connecting* connecting = nullptr;  // of the side that connects, in its own copy
};
static_assert(sizeof(Handle) <= NCCL_NET_HANDLE_MAXSIZE);

class Listening {
 public:
  // An error leaves it empty.
  static ncclResult_t create(Handle* handle, std::unique_ptr<Listening>* listening);
  // *socket stays empty until somebody who knows the cookie is there.
  ncclResult_t accept(Fd* socket);

 private:
  Fd socket_;
  Fd candidate_;
  uint64_t cookie_ = 0;
};

class Connecting {
 public:
  static ncclResult_t create(const Handle& handle, std::unique_ptr<Connecting>* connecting);
  // *socket stays empty until the connection stands.
  ncclResult_t finish(Fd* socket);

 private:
  Fd socket_;
  uint64_t cookie_ = 0;
};

}  // namespace weft::baseline
