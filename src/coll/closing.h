// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "src/coll/backend.h"

// The end of a lost backend. Its connections close with the poll passes of their engine, so a data call of
// NCCL's waits neither until the fabrics have nothing under way any more, nor for a daemon that hangs. The
// spare that goes on without the backend owns it. take() is called once; any thread may ask over().
namespace weft::coll {

class Closing {
 public:
  // Gives the connections to their engine and returns at once. A thread that registers memory just now may
  // hold the backend a little longer.
  void take(std::shared_ptr<Backend> lost);
  // True: nothing of the backend writes to memory any more. True as long as nothing was taken.
  bool over() const { return underWay_.expired(); }
  // Waits without a deadline of its own: each connection has its own ones.
  void wait(const Clock& clock) const {
    while (!over()) clock.sleep(Milliseconds(1));
  }

 private:
  std::weak_ptr<const void> underWay_;  // what the connections keep until they are over
};

}  // namespace weft::coll
