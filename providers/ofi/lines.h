// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <map>
#include <memory>
#include <string>

#include "providers/ofi/info.h"

// Lines of 128 bytes, which NCCL's protocol LL128 wants to land whole or in increasing address order. A
// card's reliable datagrams make no such promise by themselves; newer EFA cards can be asked for it
// (fi_efa(7), FI_OPT_EFA_WRITE_IN_ORDER_ALIGNED_128_BYTES).
//
// The promise holds for the bytes that one write puts into one aligned line. That is enough: segments of a
// message begin at multiples of 128 bytes from its start, and NCCL's lines at multiples from an aligned
// buffer, so no line is cut between two writes or rails. A segment is written again on another rail only when
// the receiver asks for it, after the first rail is fenced, so it never runs into the first write. The
// promise is used only on the fabric whose writes are always the card's: the plain one may copy through
// buffers, or through shared memory on one host.
namespace weft::ofi {

// What a card showed in a trial: it was opened for a moment, with an endpoint.
struct CardTrial {
  bool promisesLines = false;
  std::string abilities;  // what it does by itself; empty: nothing to say of it
};

// Cards of one kind (part, revision, firmware) are alike, so one of them is tried in a process: eight ranks
// with 32 cards each would else open 256 domains as a job starts, which takes seconds. Control path; one
// thread at a time.
class CardTrials {
 public:
  CardTrial of(const std::shared_ptr<const Library>& library, const Traits& traits, const Nic& nic);

 private:
  std::map<std::string, CardTrial> known_;  // by the kind of card
};

// Makes an endpoint that is not enabled make the promise. 0, or libfabric's negative error code.
int askForLines(fid_ep* endpoint);

}  // namespace weft::ofi
