// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <mutex>

#include "tests/softgpu/completion.h"

namespace softgpu {

class Capture;

// An event. What it stands for is replaced by each record; who waits keeps what it stood for when it began to
// wait.
struct Event {
  std::mutex lock;
  std::shared_ptr<Completion> last;  // null: never recorded, which counts as done
  std::weak_ptr<Capture> capture;    // of the last record, when a captured stream made it
  int mark = -1;                     // its place in the capture
  bool inGraph = false;              // a graph points here, so the object stays
};

}  // namespace softgpu
