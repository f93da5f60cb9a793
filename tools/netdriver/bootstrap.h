// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <poll.h>
#include <span>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/base/fd.h"
#include "weft/result.h"

// How ranks find each other and exchange what NCCL's bootstrap would: a star of TCP connections around rank
// 0. Every wait ends at the timeout given to create; a long one for a rank that does not come says so on
// stderr. All ranks make the same calls in the same order. One thread.
namespace weft::netdriver {

// Who I am, and where rank 0 listens.
struct Place {
  int rank = 0;
  int size = 1;
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  int listenFd = -1;  // rank 0 only: a socket that listens already, as a launcher on the same machine has it
};

class Bootstrap {
  struct Key {};

 public:
  explicit Bootstrap(Key) {}

  static Result<std::unique_ptr<Bootstrap>> create(const Place& place, Milliseconds timeout);

  int rank() const { return rank_; }
  int size() const { return size_; }

  // all.size() == size() * mine.size(); the same length on every rank.
  Status allGather(std::span<const std::byte> mine, std::span<std::byte> all);
  Status barrier();
  // What rank 0 has in it, for all; as long on every rank.
  Status fromRoot(std::span<std::byte> bytes);
  // Only rank 0 gets them; elsewhere `all` is not touched.
  Status gatherToRoot(std::span<const std::byte> mine, std::span<std::byte> all);

  template <class T>
  Result<std::vector<T>> gatherValues(const T& mine) {
    std::vector<T> all(static_cast<size_t>(size_));
    TRY(allGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
    return all;
  }

  // By rank on rank 0, empty elsewhere.
  template <class T>
  Result<std::vector<T>> gatherValuesToRoot(const T& mine) {
    std::vector<T> all(rank_ == 0 ? static_cast<size_t>(size_) : 0);
    TRY(gatherToRoot(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
    return all;
  }

 private:
  Status acceptAll(const Place& place, Milliseconds timeout);
  Result<int> acceptOne(int listener, Milliseconds timeout);
  std::string missingRanks() const;
  Status dialRoot(const Place& place, Milliseconds timeout);
  Status hearAnswer(int fd, const std::string& where) const;
  Status awaitAny(std::vector<pollfd>& due) const;

  int rank_ = 0;
  int size_ = 1;
  Milliseconds timeout_{};
  std::vector<Fd> peers_;  // rank 0: by rank, own entry empty; others: one, to rank 0
};

// A listening socket on the loopback interface, not closed by exec, and its port: what a launcher makes for
// rank 0.
struct LocalListener {
  Fd fd;
  uint16_t port = 0;
};
Result<LocalListener> listenLocally();

}  // namespace weft::netdriver
