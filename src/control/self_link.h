// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <memory>

#include "src/control/peer.h"

// The link of a process that connects to itself: a message to this peer is received from it at once, without
// a socket. The control loop owns it. Control thread.
namespace weft::control {

class SelfLink : public MessageSink {
 public:
  using Receive =
      std::function<void(const std::shared_ptr<PeerImpl>& from, uint16_t type, const Bytes& body)>;

  SelfLink(std::shared_ptr<PeerImpl> peer, Receive receive)
      : peer_(std::move(peer)), receive_(std::move(receive)) {
    peer_->connectSink(this);
  }
  ~SelfLink() override { peer_->connectSink(nullptr); }
  SelfLink(const SelfLink&) = delete;
  SelfLink& operator=(const SelfLink&) = delete;

  PeerImpl& peer() { return *peer_; }
  void deliver(uint16_t type, Bytes body) override { receive_(peer_, type, body); }

 private:
  const std::shared_ptr<PeerImpl> peer_;
  const Receive receive_;
};

}  // namespace weft::control
