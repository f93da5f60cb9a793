// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/netdriver/channel.h"

// The two ends of one pair of ranks, connected both ways: small messages to and fro, and a stream in one
// direction. Both ranks call the matching function at the same time. Contents are checked. Used by one
// thread.
namespace weft::perf {

class PairProbe {
 public:
  static Result<PairProbe> create(netdriver::Comm to, netdriver::Comm from, int rank, int peer,
                                  Milliseconds stall);

  // Exchanges small messages, the caller with `begins` first. The time, in microseconds, from a
  // message's stamp by the sender's clock to its arrival here by ours, that one in twenty stays below.
  Result<double> latency(bool begins);

  // Streams `bytes` to the peer, or from it, several times; the receiver gets GB/s over the time between the
  // first and the last message, of the best stream: other work on the machine only makes some slower, a slow
  // path all. The sender gets 0.
  Result<double> bandwidth(bool sends, uint64_t bytes);

 private:
  struct Packet;

  Status send(size_t bytes, uint64_t number);
  // Until the oldest message is there; the time is when it was seen.
  Result<int64_t> receive(size_t bytes, uint64_t number, int64_t* stamp);
  template <class F>
  Status until(F&& done);
  Result<double> stream(bool sends, uint64_t messages, size_t bytes);

  std::unique_ptr<netdriver::SendChannel> send_;
  std::unique_ptr<netdriver::RecvChannel> receive_;
  Milliseconds stall_{0};
};

}  // namespace weft::perf
