// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/log.h"
#include "src/core/engine.h"
#include "src/core/peering.h"

// How a peering comes to go through shared memory, or not.
namespace weft::core {

// Whoever made the first call has the peer's address from the reply, and sends its own ahead of everything
// else: so the peer has looked by the time it reads our half.
bool Peering::meet(const PeeringInfo& half) {
  if (!life_.is(Stage::opening) || sameHost_.decided()) return true;
  if (remote_.life == 0) remote_.life = half.life;
  if (sameHost_.state() == SameHost::State::offered) {
    const Bytes ours = sameHost_.address();
    sameHost_.ask(half.localAddress);
    if (!sameHost_.decided()) tell(MessageType::localAddress, LaneMessage{0, 0, {}, ours});
  }
  return sameHost_.decided();
}

// Who got the peer's half by `open` finds in it what the peer decided; our own endpoint then says the same.
Status Peering::settleSameHost(const PeeringInfo& half) {
  const bool asked = sameHost_.state() != SameHost::State::no || !sameHost_.why().empty();
  if (!sameHost_.decided()) {
    sameHost_.ask(half.localAddress);
    if (half.localAddress.empty()) sameHost_.answered(false, "the peer cannot see our memory");
    if (!sameHost_.decided()) engine_.drain(engine_.localRail());
  }
  if (!sameHost_.decided())
    return Error(Code::remote, "connecting",
                 peer_->name() +
                     " says that the two share memory, which is not so here; WEFT_LOCAL=off "
                     "goes by the network");
  if (sameHost_.state() == SameHost::State::yes)
    goThroughSharedMemory();
  else if (asked)
    WEFT_LOG(info, "messages to %s go by %s, not through shared memory: %s", peer_->name().c_str(),
             lanes_.railNames().c_str(), sameHost_.why().c_str());
  return {};
}

// The rails' lanes were never connected. This one is.
void Peering::goThroughSharedMemory() {
  const size_t rail = engine_.localRail();
  lanes_.clear();
  lanes_.add(static_cast<uint8_t>(rail), engine_.railInfo(rail).name, sameHost_.take(), 1);
  lanesConnected_ = 1;
  wantsDelivered_ = false;
  lanes_.connected(lanes_.at(0), true, {});
  WEFT_LOG(info, "messages to %s go through shared memory", peer_->name().c_str());
}

}  // namespace weft::core
