// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/send_comm.h"

// Placed messages as their sender sees them (recv_comm_placed.cc has the other end): what the receiver has
// opened, and messages that land there. Each takes a CTS, which says where its notifications go, and nothing
// else of it differs from a message by CTS.
namespace weft::core {

// What is opened. From within the engine, by the control link:

void SendCommImpl::takeOpened(const OpenMemoryMessage& message) {
  opened_.insert_or_assign(message.number, Opened{message.memory, message.offset, message.length});
}

// Nothing more begins there. What did comes before the next message, so the receiver can wait for it.
void SendCommImpl::forgetOpened(const ShutMemoryMessage& message) {
  opened_.erase(message.number);
  peering().tell(MessageType::memoryShut,
                 ShutMemoryMessage{remoteNumber_, message.number, message.tag, tags_.at(message.tag).k});
}

bool SendCommImpl::isOpen(uint32_t number) {
  EngineEntry in(engine(), EngineEntry::tryOnce);
  return in && opened_.contains(number);
}

Posted SendCommImpl::isendPlaced(const void* data, size_t bytes, int tagNumber, MemoryHandle* memory,
                                 uint32_t number, uint64_t offset) {
  const Send send{data, bytes, static_cast<uint32_t>(tagNumber), memory, nullptr};
  if (const char* why = fault(send)) return refuse(why);
  Engine& engine = this->engine();
  if (!engine.tryEnter()) return cannotStart(false);
  const EngineStay inside(engine);
  for (bool polled = false;; polled = true) {
    if (!mayStart()) return cannotStart(true);
    readCtsChain();
    TagState& tag = tags_.at(send.tag);
    if (const HeldCts cts = ctsFor(tag)) {
      Request* request = sendPlaced(send, tag, cts, number, offset);
      return {request != nullptr || !failed(), request};
    }
    if (polled) return notNow(tag, send.tag, bytes);
    engine.progress();
  }
}

}  // namespace weft::core
