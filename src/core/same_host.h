// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "src/base/bytes.h"
#include "weft/transport.h"

// Whether a peering goes through memory that both processes share, in place of the device's rails. That is
// tried, once, before the peering has lanes: an endpoint of the local device stands only where each end has
// found the other's memory, and fails at both where one has not. Owned by its Peering, as two connections
// that cross ask the one question from both ends; Meeting asks it. Used only inside the engine.
//
//   offered -- ask --> asked -- answered --> yes
//      |                 +---- answered --> no
//      +-- ask, the peer cannot --------->
namespace weft::core {

class SameHost {
 public:
  enum class State : uint8_t {
    offered,  // our endpoint waits for the peer's address
    asked,    // it has it, and the two look for each other
    yes,
    no,
  };

  SameHost() = default;
  // An endpoint to try it with, or why there is none.
  void offer(Result<std::unique_ptr<Endpoint>> endpoint);

  State state() const { return state_; }
  bool decided() const { return state_ >= State::yes; }
  bool is(const Endpoint* endpoint) const { return endpoint_ && endpoint_.get() == endpoint; }
  const std::string& why() const { return why_; }  // of `no`; empty: it never was a question
  Bytes address() const;                           // empty: the peer need not try

  void ask(std::span<const std::byte> peerAddress);  // again is harmless; an empty address is a no
  void answered(bool stands, const std::string& reason);
  std::unique_ptr<Endpoint> take();  // of `yes`, the lane that stands

 private:
  void refuse(const std::string& reason);
  void enter(State next);  // the only writer of state_

  std::unique_ptr<Endpoint> endpoint_;
  Bytes address_;
  State state_ = State::no;
  std::string why_;
};

}  // namespace weft::core
