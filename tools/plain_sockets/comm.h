// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <sys/uio.h>

#include "nccl/types.h"
#include "src/base/fd.h"

// The two ends of one TCP connection: each message is its length and then its bytes, in the order of the
// sends, which is that of the receives. No protocol beyond that: who sends does not know what is posted, and
// the socket's buffers are all there is between the two. Nothing sleeps and nothing locks: a comm is driven
// by the calls of one thread. Lengths in bytes.
namespace weft::baseline {

constexpr size_t kMostRequests = 64;  // of one comm, twice what NCCL promises not to exceed

class Comm;

// Before every message. A cache line of its own, so that what follows lies in the kernel's memory as it does
// in ours: a copy that is shifted by a few bytes can take several times as long.
struct alignas(64) Header {
  uint64_t size = 0;
};

struct Request {
  Comm* comm = nullptr;
  std::byte* data = nullptr;
  size_t size = 0;  // to send; to receive: room, and then what has come
};

// Requests by number: `reported` <= `finished` <= `started`.
class Comm {
 public:
  explicit Comm(Fd socket);
  virtual ~Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // Null while there is no room.
  Request* start(void* data, size_t size);
  // Moves what the socket takes or has, and says whether the request is through. The oldest one is to be
  // asked first.
  ncclResult_t test(Request* request, int* done, int* size);

 protected:
  virtual ncclResult_t move() = 0;
  bool idle() const { return reported_ == started_; }
  Request& at(uint64_t number) { return requests_[number % kMostRequests]; }
  // The meaning of the last system call's error: nothing yet, or the end of the connection.
  ncclResult_t outcome(const char* call) const;

  Fd socket_;
  std::array<Request, kMostRequests> requests_;
  uint64_t started_ = 0;
  uint64_t finished_ = 0;
  uint64_t reported_ = 0;
};

class SendComm final : public Comm {
 public:
  using Comm::Comm;
  // As start(), and hands it to the socket at once when nothing else is under way: what follows closely goes
  // in one call with its neighbours.
  ncclResult_t send(void* data, size_t size, Request** request);

 private:
  ncclResult_t move() override;
  size_t gather(std::array<iovec, kMostRequests>* pieces);
  void advance(size_t bytes);

  std::array<Header, kMostRequests> headers_;
  size_t sent_ = 0;  // of the oldest unfinished one, its header included
};

class RecvComm final : public Comm {
 public:
  using Comm::Comm;

 private:
  static constexpr size_t kAheadBytes = 4096;

  ncclResult_t move() override;
  ncclResult_t takeFromAhead();
  ncclResult_t begin();
  ncclResult_t readMore();
  size_t aheadBytes() const { return end_ - begin_; }

  // The bytes that were read beyond the message that was wanted.
  std::array<std::byte, kAheadBytes> ahead_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool inMessage_ = false;
  uint64_t size_ = 0;  // of the message that is coming
  size_t got_ = 0;     // of it
};

}  // namespace weft::baseline
