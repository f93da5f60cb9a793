// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "tests/softefa/inbox.h"
#include "tests/softefa/wire.h"

namespace softefa {

// The inboxes of other NICs, found by GID and queue pair number and kept open. Guarded by the device's lock.
class Links {
 public:
  enum class Sent {
    yes,
    full,     // try again later
    noInbox,  // the host is known, and nothing there has that queue pair
    noHost,   // nothing of that name was ever there
  };

  explicit Links(std::string fabric) : fabric_(std::move(fabric)) {}

  Sent put(const Gid& to, uint32_t qpn, const PacketHeader& header, std::span<const Piece> payload);

  // False when what was sent there will not be answered: killed, silent, or gone.
  bool answers(const Gid& to, uint32_t qpn);

  // Where a NIC's inboxes lie.
  std::string folderOf(const Gid& gid) const { return fabric_ + "/" + toHex(gid); }

 private:
  Inbox* find(const Gid& to, uint32_t qpn);

  std::string fabric_;
  std::map<std::pair<Gid, uint32_t>, std::shared_ptr<Inbox>> inboxes_;
};

}  // namespace softefa
