// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/config.h"
#include "src/base/fd.h"
#include "weft/result.h"

// The TCP connection between rank 0 and another rank: messages of any length, a sign of life each second, and
// the last words of one that fails. So a rank that is stopped, or whose host is cut off, is told from one
// that is busy. Receiving: one thread; sending: any.
namespace weft::netdriver {

constexpr const char* kRendezvous = "rendezvous";  // what errors of it are of

using Moment = std::chrono::steady_clock::time_point;

class Wire {
 public:
  // `peer`: "rank 2 on node7 (pid 4711)". A peer of which nothing comes for `silence` is given up; 0: never.
  Wire(Fd fd, std::string peer, Milliseconds silence);

  const std::string& peer() const { return peer_; }
  int fd() const { return fd_.get(); }
  Milliseconds silence() const { return silence_; }

  Status send(std::span<const std::byte> bytes);
  // The next message, which must be as long.
  Status receive(std::span<std::byte> bytes, Moment deadline);
  Result<std::vector<std::byte>> receiveAny(Moment deadline, size_t most);  // bytes of it

  // For who waits on several of them. `begin` when the wait begins; `take` when there is something to read: a
  // message, or nothing if it was a sign of life; `look` now and then, which says when the peer is silent,
  // and fails when that is too long.
  void begin();
  Result<std::optional<std::vector<std::byte>>> take(size_t most);
  Status look();

  void sayAlive();
  void sayLastWords(std::string_view why);  // at most once

 private:
  struct Head {
    uint32_t kind = 0;
    uint32_t bytes = 0;
  };
  Status send(uint32_t kind, std::span<const std::byte> bytes);
  Status sendAll(std::span<const std::byte> bytes);
  Status receiveAll(std::span<std::byte> bytes);
  Error broken(const char* how) const;

  Fd fd_;
  const std::string peer_;
  const Milliseconds silence_;
  Moment heard_{};
  bool complained_ = false;
  std::mutex sending_;
  bool lastWordsSaid_ = false;
};

}  // namespace weft::netdriver
