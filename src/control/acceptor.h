// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <variant>
#include <vector>

#include "src/base/net/sockets.h"
#include "src/control/event_loop.h"
#include "src/control/frame_seal.h"
#include "src/control/wire.h"

// The port of this process, and the guests that connect to it, until they have proven their identity. At most
// kMostGuests are there at a time, and the oldest of the address with most of them gives way to a new one;
// each has a small fixed state and a deadline. The control loop owns it. Control thread.
namespace weft::control {

// A listening socket for each address that peers are told, all with one port: nobody reaches it by another.
struct ListeningSockets {
  std::vector<Fd> sockets;
  std::vector<SocketAddress> addresses;  // of the sockets, in their order
};
Result<ListeningSockets> openListeners(const std::vector<SocketAddress>& addresses,
                                       const PortRange& ports = {});

// A connection whose other side proved the secret and introduced itself. The receiver of the report owns the
// socket.
struct Greeting {
  SealedSocket socket;
  Hello hello;
  Key256 binding{};  // the hash of the handshake
  Key256 linkKey{};  // proves later connections of the same link (HelloKind::resume)
  Info info;
};

class Acceptor {
 public:
  static constexpr size_t kMostGuests = 128;
  // kPatience covers the whole talk with a guest.
  static constexpr Milliseconds kPatience{4000};

  // The secret that a hello has to prove, or the answer that turns the guest away.
  using SecretFor = std::function<std::variant<Key256, Answer>(const Hello& hello)>;
  // Called last, with the handshake already dropped: it may do anything with the acceptor but destroy it.
  using Greeted = std::function<void(Greeting greeting)>;

  // `flags` (HelloFlags): how this process protects its links.
  Acceptor(EventLoop& loop, uint8_t flags, SecretFor secretFor, Greeted greeted);
  ~Acceptor();
  // Begins to accept. Destroying the acceptor closes the sockets, and those of all guests.
  Status start(std::vector<Fd> listeners);

 private:
  // The talk with a guest (acceptor.cc).
  class Handshake;
  struct Listening {
    Fd socket;
    std::unique_ptr<Watch> watch;  // after socket: stops before it closes
  };

  void acceptAll(int listener);
  // Tells once that a process protects its links in another way.
  void warnOfOtherFlags(const Hello& hello, const SocketAddress& from);
  // Drops a guest. False: there is none.
  bool makeRoom();
  void listenAgain();
  void drop(uint64_t id);

  EventLoop& loop_;
  const uint8_t flags_;
  const SecretFor secretFor_;
  const Greeted greeted_;
  Timer rest_;  // runs while descriptors are short: nothing is accepted then
  std::vector<Listening> listening_;
  std::list<std::unique_ptr<Handshake>> handshakes_;  // oldest first
  uint64_t lastId_ = 0;
  bool warned_ = false;
};

}  // namespace weft::control
