// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <utility>

#include "weft/result.h"

// Why a peering, or a comm, is over, and who has to hear of it. There is one way down: whatever goes wrong
// makes an Ending, `Peering::end` ends every comm on the peering with it, `CommBase::end` one comm. The first
// one stays. A value.
namespace weft::core {

struct Ending {
  enum class By : uint8_t {
    us,      // this end cannot go on, and tells the other one
    owner,   // the comm's owner has no use for it any more, knows why, and wants the other end to hear it
    peer,    // the other end said so
    gone,    // the peer's process or host is gone: nobody is left to tell
    caller,  // NCCL took something away that was in use, as it does when it aborts; the other end hears of it
             // by what the closing calls say
  };

  Ending(By who, Error why) : error(std::move(why)), by(who) {}

  Error error;
  By by;
};

}  // namespace weft::core
