// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <functional>

#include "src/core/ending.h"

// What a path (a peering, its fail-over, an engine's flush lanes) asks of the engine that owns it and that
// knows the comms; a path knows none. Called only inside the engine, and none of it for each message.
namespace weft::core {

class Peering;
struct ReceiveSlot;
struct Request;

class PathOwner {
 public:
  // The comms on a path:
  virtual void endComms(const Peering& peering, const Ending& ending) = 0;
  virtual void endComm(const Request& request, const Ending& ending) = 0;  // the one whose request it is
  virtual size_t openComms(const Peering& peering) const = 0;  // that have not ended, nor are being closed
  virtual void tellCts(const Peering& peering, uint8_t lane) = 0;  // as RecvCommImpl::tellCts
  virtual bool belongsTo(const ReceiveSlot& slot, const Peering& peering, uint32_t comm) const = 0;
  // The sends that went by a peering, each with its comm's number at the peer.
  using SendVisit = std::function<void(const Request&, uint32_t)>;
  virtual void eachSendOn(const Peering& peering, const SendVisit& visit) = 0;
  virtual void resolve(Request* request, uint16_t segments, uint16_t missing) = 0;  // as SendCommImpl's

  // The poll pass:
  virtual void drain(size_t rail) = 0;  // polls until nothing more comes; also from within a completion
  virtual void flushQueued() = 0;       // hands to the fabric what is due
  virtual bool carries(size_t rail) const = 0;  // something may come by this card

 protected:
  ~PathOwner() = default;
};

}  // namespace weft::core
