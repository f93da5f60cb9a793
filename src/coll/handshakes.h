// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/coll/pipe.h"

// Connecting this rank with several others at once, and the greetings that say whose each connection is.
// All of them go on side by side: a rank that is lost keeps nobody from the others, so that every rank that
// is there can say which one is not. Blocks, with a deadline. Belongs to one thread.
namespace weft::coll {

using HandleBytes = std::array<std::byte, control::kHandleBytes>;

// The group that is to be connected. Every rank gives the same handles in the same order.
struct MeshOptions {
  core::ContextRef context;
  core::ListenComm* listener = nullptr;  // its handle is among `handles`, at `rank`
  int device = 0;
  int rank = 0;
  std::vector<HandleBytes> handles;  // by rank
  bool full = true;                  // false: connections with rank 0 only
  Milliseconds timeout{20000};
  const char* purpose = "a collective group";       // for errors
  const char* hint = "is WEFT_COLLNET set there?";  // where a rank does not answer

  int ranks() const { return static_cast<int>(handles.size()); }
};

class Handshakes {
 public:
  // `group`: Mesh::group(). The options outlive it.
  Handshakes(const MeshOptions& options, uint64_t group, const std::vector<int>& ranks);

  // Until each rank is here or is known to be missing, `options.timeout` at most. An error: this rank cannot
  // go on, or a stranger called.
  Status run();

  struct Missing {
    int rank;
    std::string why;
  };
  std::vector<Missing> missing() const;
  // The error of them all: those that failed before those that only did not come. Where some are missing.
  Error error() const;
  // The connection with the rank, which the caller has from then on; null: it is missing.
  std::unique_ptr<Pipe> take(int rank);

 private:
  // asked (we connect) -> greeting (our hello leaves) -> greeted (it has left), or -> lost from either of the
  // first two. enter() alone changes it.
  struct Other {
    enum class State : uint8_t { asked, greeting, greeted, lost };
    void enter(State next) { state = next; }
    bool here() const { return state == State::greeted && incoming; }
    int rank = 0;
    State state = State::asked;
    HandleBytes handle{};            // connect() keeps its progress in it
    std::unique_ptr<Pipe> outgoing;  // from state greeting on
    std::unique_ptr<Pipe> incoming;  // once its hello is here
    std::string why;                 // in state lost
    Code code = Code::remote;
  };

  Other* find(int rank);  // null: none of those that are connected here
  Status connect(Other& other);
  void greet(Other& other);
  static void lose(Other& other, const Error& error);
  Status accept();
  Status hearStrangers();
  void takeLoss(const Error& error);
  Status welcome(const Bytes& said, std::unique_ptr<Pipe> pipe);
  bool over() const;
  size_t awaited() const;
  std::string reasonOf(const Other& other) const;
  Error failed(const std::string& why, Code code = Code::remote) const;

  const MeshOptions& options_;
  const uint64_t group_;
  std::vector<Other> others_;
  size_t accepted_ = 0;                           // connections that came, and those that failed as they did
  std::vector<std::unique_ptr<Pipe>> strangers_;  // accepted, and not yet said whose they are
  size_t broken_ = 0;                             // connections that failed before they said it
  std::string brokenWhy_;                         // of the first of them
};

}  // namespace weft::coll
