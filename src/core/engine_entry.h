// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/core/engine.h"

// Staying inside an engine for a scope.
namespace weft::core {

// Enters, and leaves if that came to pass.
class EngineEntry {
 public:
  enum Mode : uint8_t { tryOnce, wait };
  EngineEntry(Engine& engine, Mode mode) : engine_(engine) {
    if (mode == wait) engine.enterWaiting();
    entered_ = mode == wait || engine.tryEnter();
  }
  ~EngineEntry() {
    if (entered_) engine_.leave();
  }
  EngineEntry(const EngineEntry&) = delete;
  EngineEntry& operator=(const EngineEntry&) = delete;
  explicit operator bool() const { return entered_; }

 private:
  Engine& engine_;
  bool entered_;
};

// Of who has entered with tryEnter: the data calls, where there is nothing to ask at the end.
class EngineStay {
 public:
  explicit EngineStay(Engine& engine) : engine_(engine) {}
  ~EngineStay() { engine_.leave(); }
  EngineStay(const EngineStay&) = delete;
  EngineStay& operator=(const EngineStay&) = delete;

 private:
  Engine& engine_;
};

}  // namespace weft::core
