// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <map>
#include <memory>

#include "tools/netdriver/comm.h"
#include "tools/replay/plan.h"

// The registered memory of one replayed comm. In the job, comms shared memory and messages came from where
// others had just landed; here each comm has its own, and a further one for what would lie over a request
// that is under way, since every message has bytes of its own. Used by one thread at a time.
namespace weft::replay {

// A message's bytes, from the post to the end of its request.
struct Place {
  std::byte* data = nullptr;
  size_t size = 0;
  void* mhandle = nullptr;
};

// How memory is registered with what the comm is one of: the network's table, or that for collective offload.
// Outlives what it registered.
class Registrar {
 public:
  virtual ~Registrar() = default;
  virtual Result<void*> add(std::span<std::byte> memory) = 0;  // its handle
  virtual void remove(void* mhandle) = 0;
};

struct Deregister {
  Registrar* registrar = nullptr;
  void operator()(void* mhandle) const { registrar->remove(mhandle); }
};

class CommMemory {
 public:
  CommMemory(const std::map<uint64_t, MemoryFacts>& facts) : facts_(&facts) {}

  Status registerOne(Registrar& registrar, uint64_t number);
  // All of that number; fine where there is none.
  void release(uint64_t number);
  void releaseAll();

  // Where a part is put that overlaps nothing under way.
  Result<Place> take(Registrar& registrar, const trace::Part& part);
  void giveBack(const Place& place);

 private:
  struct Area {
    netdriver::HostBuffer buffer;
    std::unique_ptr<void, Deregister> registration;  // goes before the buffer
    size_t shift = 0;                                // of the first byte in its page, as it was recorded
  };

  Result<Area*> areaOf(Registrar& registrar, uint64_t number, size_t copy, size_t least);
  bool inUse(const std::byte* data, size_t size) const;

  const std::map<uint64_t, MemoryFacts>* facts_;
  std::map<std::pair<uint64_t, size_t>, Area> areas_;  // by number and copy
  std::map<const std::byte*, size_t> used_;            // begin and size of what is under way
};

}  // namespace weft::replay
