// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/base/config.h"
#include "src/base/fd.h"
#include "tools/netdriver/greeting.h"
#include "tools/netdriver/wire.h"
#include "weft/result.h"

// How ranks find each other and exchange what NCCL's bootstrap would: a star of TCP connections around rank
// 0. Every wait ends at the timeout given to create, and earlier where a rank is stopped or cut off; a long
// one for a rank that does not come says so on stderr. All ranks make the same calls in the same order. Used
// by one thread.
namespace weft::netdriver {

// The rank of this process, and where rank 0 listens.
struct Place {
  int rank = 0;
  int size = 1;
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  int listenFd = -1;  // rank 0 only: a socket that listens already, as a launcher on the same machine has it
  // The secret that all ranks of the run know, and nobody else. Empty: the run is of this host alone, rank 0
  // listens on the loopback interface, and whoever is on the host may come in.
  std::string token;
  // Of two ranks: the other one listens, and rank 0 dials.
  bool rootDials = false;
};

struct Patience {
  Milliseconds timeout{0};  // of every wait
  Milliseconds silence{0};  // of a rank that is there and says nothing: it is given up; 0: never
  // Rank 0 goes on without those that have not come when nobody has come for so long; 0: never.
  Milliseconds missing{0};
};

class Bootstrap {
  struct Key {};

 public:
  explicit Bootstrap(Key) {}
  ~Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  static Result<std::unique_ptr<Bootstrap>> create(const Place& place, const Patience& patience);
  static Result<std::unique_ptr<Bootstrap>> create(const Place& place, Milliseconds timeout) {
    return create(place, Patience{timeout, {}, {}});
  }

  int rank() const { return rank_; }
  int size() const { return size_; }

  // all.size() == size() * mine.size(); the same length on every rank.
  Status allGather(std::span<const std::byte> mine, std::span<std::byte> all);
  Status barrier();
  // Gives to all what rank 0 has in it; as long on every rank.
  Status fromRoot(std::span<std::byte> bytes);
  // Only rank 0 gets them; elsewhere `all` is not touched. In the place of a rank that is missing stands what
  // rank 0 says.
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

  // For rank 0 and one other, which may be lost without ending the rest:
  bool present(int rank) const { return rank == rank_ || wire(rank) != nullptr; }
  Status tell(int rank, std::span<const std::byte> message);
  // `most`: bytes of a message, as large as it can be by what this run asked for. A longer one is an error
  // before there is room for it.
  Result<std::vector<std::byte>> hear(int rank, Moment deadline, size_t most);
  // On rank 0: the next message of each of these, or why there is none, in the order in which they come,
  // until the deadline. `visit` says whether to go on.
  using Visit = std::function<bool(int rank, Result<std::vector<std::byte>> message)>;
  void hearEach(std::vector<int> ranks, Moment deadline, size_t most, const Visit& visit);
  void lose(int rank);  // it is not there any more

  // Why this rank ends: whoever waits for it says so.
  void abandon(const std::string& why);

 private:
  Status acceptAll(const Place& place);
  Result<int> take(Fd peer, const Hello& hello);
  Status greet(Fd fd, const std::string& where);
  std::string missingRanks() const;
  Result<Fd> dial(const Place& place);
  Status dialRoot(const Place& place);
  void beginBeating();
  Wire* wire(int rank) const;
  Moment deadline() const { return std::chrono::steady_clock::now() + patience_.timeout; }

  int rank_ = 0;
  int size_ = 1;
  TokenKey key_{};
  Patience patience_;
  std::vector<std::unique_ptr<Wire>> wires_;  // rank 0: by rank, its own empty; others: one, to rank 0
  std::mutex mutex_;                          // over wires_ against the thread that says we are alive
  Fd stop_;
  std::thread beating_;
};

// A listening socket on the loopback interface, not closed by exec, and its port: what a launcher makes for
// rank 0.
struct LocalListener {
  Fd fd;
  std::string host;  // of IPv4, or of IPv6 where this host has that alone
  uint16_t port = 0;
};
Result<LocalListener> listenLocally();

}  // namespace weft::netdriver
