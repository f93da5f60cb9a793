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
#include "src/control/wire.h"

// The port of this process, and the guests who connect to it, until they have proven who they are: at most
// kMostGuests at a time (the oldest gives way), each with a small fixed state and a deadline. Control thread.
namespace weft::control {

// One listening socket a family, all on one port and on every local address.
struct ListeningSockets {
  std::vector<Fd> sockets;
  uint16_t port = 0;
};
Result<ListeningSockets> openListeners();

// A connection whose other side proved the secret and introduced itself.
struct Greeting {
  Fd socket;
  Hello hello;
  Nonce nonce{};  // ours
  Key128 linkKey{};
  Info info;
};

class Acceptor {
 public:
  static constexpr size_t kMostGuests = 128;
  static constexpr Milliseconds kPatience{4000};

  // The secret that a hello has to prove, or the answer that turns it away.
  using SecretFor = std::function<std::variant<Key128, Answer>(const Hello& hello)>;
  using Greeted = std::function<void(Greeting greeting)>;

  Acceptor(EventLoop& loop, SecretFor secretFor, Greeted greeted);
  ~Acceptor();
  Status start(std::vector<Fd> listeners);

 private:
  class Handshake;
  struct Listening {
    Fd socket;
    std::unique_ptr<Watch> watch;  // after socket: stops before it closes
  };

  void acceptAll(int listener);
  bool makeRoom();
  void listenAgain();
  void drop(uint64_t id);

  EventLoop& loop_;
  const SecretFor secretFor_;
  const Greeted greeted_;
  Timer rest_;  // a pause when descriptors ran out
  std::vector<Listening> listening_;
  std::list<std::unique_ptr<Handshake>> handshakes_;  // oldest first
  uint64_t lastId_ = 0;
};

}  // namespace weft::control
