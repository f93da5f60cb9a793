// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/same_host.h"

#include <utility>

namespace weft::core {

void SameHost::offer(Result<std::unique_ptr<Endpoint>> endpoint) {
  if (!endpoint) return refuse(endpoint.error().message());
  endpoint_ = endpoint.take();
  const auto address = endpoint_->address();
  address_.assign(address.begin(), address.end());
  state_ = State::offered;
}

Bytes SameHost::address() const {
  return state_ == State::no ? Bytes{} : address_;
}

void SameHost::ask(std::span<const std::byte> peerAddress) {
  if (state_ != State::offered) return;
  if (peerAddress.empty()) return refuse("the peer offers none");
  state_ = State::asked;
  if (Status asked = endpoint_->connect(peerAddress); !asked) refuse(asked.error().message());
}

void SameHost::answered(bool stands, const std::string& reason) {
  if (state_ != State::asked) return;
  if (!stands) return refuse(reason);
  state_ = State::yes;
}

std::unique_ptr<Endpoint> SameHost::take() {
  return std::move(endpoint_);
}

void SameHost::refuse(const std::string& reason) {
  state_ = State::no;
  why_ = reason;
  endpoint_.reset();
}

}  // namespace weft::core
