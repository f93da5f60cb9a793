// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "providers/tcp/wire.h"
#include "src/base/net/guest.h"

// The socket that a Queue's peers dial, and the guests at the door: connections that have not said which lane
// they want, or want a lane that has not been told of its peer yet. Guests are few at a time and short of
// time. One thread.
namespace weft::tcp {

// A guest that has greeted.
struct Caller {
  Hello hello;
  Nonce door{};            // what it was asked
  SocketAddress from;      // length 0: it has hung up
  bool isGivenIt = false;  // its claim was found to be true
};

class Doorman {
 public:
  // The fate of a guest that has greeted.
  enum class Verdict : uint8_t { takeIn, wait, turnAway };
  using Judge = std::function<Verdict(Caller& caller)>;
  using TakeIn = std::function<void(const Caller& caller, Fd fd)>;

  Status open(const SocketAddress& interface, const PortRange& ports = {});
  bool isOpen() const { return static_cast<bool>(listener_); }
  const SocketAddress& address() const { return bound_; }
  bool busy() const { return !guests_.empty(); }

  // Lets in the connections that have come, and hears what guests have to say.
  void attend(TimePoint now, const Judge& judge, const TakeIn& takeIn);

 private:
  static constexpr size_t kMostGuests = 256;
  static constexpr int kMostAtOnce = 32;
  static constexpr std::chrono::seconds kToGreet{3};
  static constexpr std::chrono::seconds kToBeWanted{60};

  struct AtDoor {
    Guest guest;
    SocketAddress from;
    DoorBytes words{};             // our own words of the door
    size_t said = 0;               // of them, so many bytes have left
    std::optional<Caller> caller;  // when it has greeted
  };

  void letIn(TimePoint now);
  void makeRoom();
  static bool speak(AtDoor& one);         // false: likewise
  bool hear(AtDoor& one, TimePoint now);  // false: it is to go

  Fd listener_;
  SocketAddress bound_;
  std::vector<AtDoor> guests_;
};

}  // namespace weft::tcp
