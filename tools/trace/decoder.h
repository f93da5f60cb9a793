// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/trace/format.h"

// Takes the events of one block apart again: encoder.h turned round. Never reads past its input. Used by one
// thread.
namespace weft::trace {

class Decoder {
 public:
  // The body must outlive the events: their texts lie in it.
  Decoder(std::span<const std::byte> body, uint32_t thread, uint64_t base)
      : rest_(body), thread_(thread), last_(base) {}

  bool atEnd() const { return rest_.empty(); }
  // Adds one event; false where the bytes are none.
  bool next(std::vector<Event>* events);

 private:
  bool varint(uint64_t* value);
  bool fixed(uint64_t* value);
  bool field(Coding coding, Event* event, size_t position);
  bool parts(Parts how, std::vector<Part>* parts);
  bool text(std::string_view* text);

  std::span<const std::byte> rest_;
  uint32_t thread_;
  uint64_t last_;
  std::array<std::array<uint64_t, kMostFields>, kKinds> previous_{};
};

}  // namespace weft::trace
