// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <vector>

#include "src/mem/heap.h"

// Direct messages that came, or are coming, before their receive was posted: the memory that each lands in.
// A lane may still be writing to it when its comm has gone, so it stays until the lane says that all has
// landed, or is gone itself: the peering owns this, and outlives its comms. Used only by who has entered the
// engine.
namespace weft::core {

class RecvCommImpl;
struct ReceiveSlot;

class EarlyMessages {
 public:
  enum class State : uint8_t {
    free,
    coming,  // its bytes are on their way
    here,    // all of them are
    orphan,  // they come, and nobody wants them any more
  };

  struct Early {
    mem::Piece block;
    RecvCommImpl* comm = nullptr;  // null: nobody waits
    ReceiveSlot* slot = nullptr;   // a receive that was posted while it came
    uint32_t tag = 0;
    uint32_t k = 0;
    uint32_t size = 0;
    State state = State::free;
  };

  // A message that begins to arrive, and for which there is room. Its index, and where its bytes go; an error
  // where memory ran out.
  Result<uint32_t> begin(mem::Heap& heap, RecvCommImpl* comm, uint32_t tag, uint32_t k, uint32_t size);

  void makeRoom();  // for one more; may fail, and nothing has changed then
  bool contains(uint32_t index) const { return index < messages_.size(); }
  Early& at(uint32_t index) { return messages_[index]; }
  // All its bytes are here. Null: nobody waits for it, and it is gone.
  Early* landed(uint32_t index);
  // Its comm is through with it.
  void release(uint32_t index);

 private:
  void drop(uint32_t index);

  std::vector<Early> messages_;
  std::vector<uint32_t> free_;
};

}  // namespace weft::core
