// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/self.h"

#include <unistd.h>

#include "src/base/process.h"

// The info frame of this process.
namespace weft::control {

Bytes Self::info(uint64_t epoch, uint64_t received) const {
  Info info;
  info.epoch = epoch;
  info.received = received;
  info.host = placeName();
  info.pid = static_cast<uint32_t>(::getpid());
  info.addresses = addresses_;
  info.fingerprint = fingerprint_;
  return encodeInfo(info);
}

}  // namespace weft::control
