// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <vector>

#include "src/base/crypto/protection.h"
#include "src/control/wire.h"

// This process as it introduces itself on control links: its incarnation, its addresses, its fingerprint. All
// of that never changes. Epochs number its connections; the control thread gives them out.
namespace weft::control {

class Self {
 public:
  Self(const Incarnation& incarnation, std::vector<SocketAddress> addresses, Fingerprint fingerprint,
       const Protection& protection)
      : incarnation_(incarnation),
        addresses_(std::move(addresses)),
        fingerprint_(std::move(fingerprint)),
        protection_(protection) {}

  const Incarnation& incarnation() const { return incarnation_; }
  const std::vector<SocketAddress>& addresses() const { return addresses_; }  // with the port
  const Fingerprint& fingerprint() const { return fingerprint_; }
  const Protection& protection() const { return protection_; }
  bool framesInClear() const { return protection_.encrypt == Protection::Encrypt::off; }
  uint8_t helloFlags() const {
    return static_cast<uint8_t>((protection_.jobSecret ? kHasJobSecret : 0) |
                                (framesInClear() ? kFramesInClear : 0));
  }
  uint64_t nextEpoch() { return ++epoch_; }
  // The first frame on a connection: this process, and the highest number among the peer's frames that it
  // has.
  Bytes info(uint64_t epoch, uint64_t received) const;

 private:
  const Incarnation incarnation_;
  const std::vector<SocketAddress> addresses_;
  const Fingerprint fingerprint_;
  const Protection protection_;
  uint64_t epoch_ = 0;  // of the newest connection
};

}  // namespace weft::control
