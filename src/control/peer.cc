// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/peer.h"

#include "src/base/log.h"
#include "src/control/wire.h"

// The parts of a peer that other threads use.
namespace weft::control {

Error PeerImpl::reason() const {
  if (alive()) return Error(Code::internal, "control link to " + facts_.name, "the peer is alive");
  return reason_;
}

void PeerImpl::send(uint16_t type, Bytes body) {
  if (!alive()) return;
  if (type < kFirstUserType || body.size() > kMaxBody) {
    WEFT_LOG(error,
             "control message of type %d and %zu bytes to %s dropped; types start at %d, at most %zu bytes",
             type, body.size(), facts_.name.c_str(), kFirstUserType, kMaxBody);
    return;
  }
  auto shared = std::make_shared<Bytes>(std::move(body));  // std::function needs copyable captures
  mailbox_->post([self = shared_from_this(), type, shared] { self->deliver(type, std::move(*shared)); });
}

// The reason is stored before alive_, so a thread that reads false also reads the reason.
void PeerImpl::markDead(const Error& reason) {
  sink_ = nullptr;
  if (!alive()) return;
  reason_ = reason;
  answers_.store(false, std::memory_order_relaxed);
  settled_.store(false, std::memory_order_relaxed);
  alive_.store(false, std::memory_order_release);
}

}  // namespace weft::control
