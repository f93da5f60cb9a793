// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <vector>

#include "providers/tcp/sockets.h"
#include "providers/tcp/wire.h"
#include "src/base/clock.h"

// The socket that a Queue's peers dial, and who is at the door: connections that have not said whom they
// want, or want a lane that has not been told of its peer yet. Strangers are few at a time and short of time.
// One thread.
namespace weft::tcp {

class Doorman {
 public:
  // What is to become of who has greeted.
  enum class Verdict : uint8_t { takeIn, wait, turnAway };
  using Judge = std::function<Verdict(const Hello& hello)>;
  using TakeIn = std::function<void(const Hello& hello, Fd fd)>;

  Status open(const SocketAddress& interface);
  bool isOpen() const { return static_cast<bool>(listener_); }
  const SocketAddress& address() const { return bound_; }
  bool busy() const { return !guests_.empty(); }

  // Lets in who has come, hears who has something to say.
  void attend(TimePoint now, const Judge& judge, const TakeIn& takeIn);

 private:
  static constexpr size_t kMostGuests = 256;  // of them, those who have not greeted go first
  static constexpr int kMostAtOnce = 32;
  static constexpr std::chrono::seconds kToGreet{3};
  static constexpr std::chrono::seconds kToBeWanted{60};

  struct Guest {
    Fd fd;
    HelloBytes bytes{};
    size_t have = 0;
    Hello hello;
    bool greeted = false;
    TimePoint deadline;
  };

  void letIn(TimePoint now);
  void makeRoom();
  bool hear(Guest& guest, TimePoint now);  // false: it is to go

  Fd listener_;
  SocketAddress bound_;
  std::vector<Guest> guests_;
};

}  // namespace weft::tcp
