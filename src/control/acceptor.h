// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <list>
#include <memory>
#include <variant>

#include "src/control/event_loop.h"
#include "src/control/sockets.h"
#include "src/control/wire.h"

// Everyone who connects to our port, until they have proven who they are: at most kMaxStrangers at a time
// (the oldest gives way), each with a small fixed state and a deadline. Control thread.
namespace weft::control {

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
  static constexpr size_t kMaxStrangers = 128;
  static constexpr Milliseconds kPatience{4000};

  class Owner {
   public:
    virtual ~Owner() = default;
    // The secret this hello has to prove, or the answer that turns it away.
    virtual std::variant<Key128, Answer> secretFor(const Hello& hello) = 0;
    virtual void greeted(Greeting greeting) = 0;
  };

  Acceptor(EventLoop& loop, Owner& owner);
  ~Acceptor();
  Status start(std::vector<Fd> listeners);

 private:
  class Stranger;
  struct Listening {
    Fd socket;
    std::unique_ptr<Watch> watch;  // after socket: stops before it closes
  };

  void acceptAll(int listener);
  bool makeRoom();
  void listenAgain();
  void drop(uint64_t id);

  EventLoop& loop_;
  Owner& owner_;
  Timer rest_;  // a pause when descriptors ran out
  std::vector<Listening> listening_;
  std::list<std::unique_ptr<Stranger>> strangers_;  // oldest first
  uint64_t lastId_ = 0;
};

}  // namespace weft::control
