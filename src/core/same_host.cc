// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/same_host.h"

#include <new>
#include <utility>

#include "src/base/log.h"

namespace weft::core {

void SameHost::enter(State next) {
  constexpr const char* kNames[] = {"offered", "asked", "yes", "no"};
  WEFT_LOG(trace, "shared memory with a peer: %s -> %s", kNames[static_cast<size_t>(state_)],
           kNames[static_cast<size_t>(next)]);
  state_ = next;
}

void SameHost::offer(Result<std::unique_ptr<Endpoint>> endpoint) {
  if (!endpoint) return refuse(endpoint.error().message());
  endpoint_ = endpoint.take();
  const auto address = endpoint_->address();
  address_.assign(address.begin(), address.end());
  enter(State::offered);
}

Bytes SameHost::address() const {
  return state_ == State::no ? Bytes{} : address_;
}

// Without memory the answer is no, and not an exception: the rails still lead to the peer, which sees that
// our endpoint is gone, where it would wait for one that never connects.
void SameHost::ask(std::span<const std::byte> peerAddress) {
  if (state_ != State::offered) return;
  if (peerAddress.empty()) return refuse("the peer offers none");
  enter(State::asked);
  try {
    if (Status asked = endpoint_->connect(peerAddress); !asked) refuse(asked.error().message());
  } catch (const std::bad_alloc&) {
    refuse("out of memory");  // as long as fits into a string without memory
  }
}

void SameHost::answered(bool stands, const std::string& reason) {
  if (state_ != State::asked) return;
  if (!stands) return refuse(reason);
  enter(State::yes);
}

std::unique_ptr<Endpoint> SameHost::take() {
  return std::move(endpoint_);
}

void SameHost::refuse(const std::string& reason) {
  enter(State::no);
  why_ = reason;
  endpoint_.reset();
}

}  // namespace weft::core
