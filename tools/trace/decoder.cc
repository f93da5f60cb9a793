// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/trace/decoder.h"

#include <cstring>

namespace weft::trace {

namespace {

int64_t unzigzag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

}  // namespace

bool Decoder::varint(uint64_t* value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) return false;
    const auto byte = static_cast<uint64_t>(rest_.front());
    rest_ = rest_.subspan(1);
    *value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool Decoder::fixed(uint64_t* value) {
  if (rest_.size() < sizeof(*value)) return false;
  std::memcpy(value, rest_.data(), sizeof(*value));
  rest_ = rest_.subspan(sizeof(*value));
  return true;
}

bool Decoder::field(Coding coding, Event* event, size_t position) {
  uint64_t& value = event->values[position];
  if (coding == Coding::fixed) return fixed(&value);
  if (!varint(&value)) return false;
  if (coding == Coding::plain) return true;
  value = static_cast<uint64_t>(unzigzag(value));
  if (coding == Coding::zigzag) return true;
  uint64_t& previous = previous_[static_cast<size_t>(event->kind)][position];
  value += previous;
  previous = value;
  return true;
}

bool Decoder::parts(Parts how, std::vector<Part>* parts) {
  uint64_t count = 0;
  if (!varint(&count) || count > kMostParts) return false;
  parts->resize(count);
  for (Part& part : *parts) {
    if (!varint(&part.size)) return false;
    if (how == Parts::sizes) continue;
    uint64_t tag = 0;
    if (!varint(&part.memory) || !varint(&part.offset) || !varint(&tag)) return false;
    part.tag = unzigzag(tag);
  }
  return true;
}

bool Decoder::text(std::string_view* text) {
  uint64_t length = 0;
  if (!varint(&length) || length > kMostText || length > rest_.size()) return false;
  *text = {reinterpret_cast<const char*>(rest_.data()), length};
  rest_ = rest_.subspan(length);
  return true;
}

bool Decoder::next(std::vector<Event>* events) {
  const auto kind = static_cast<size_t>(rest_.front());
  rest_ = rest_.subspan(1);
  if (kind >= kKinds) return false;
  Event event;
  event.kind = static_cast<Kind>(kind);
  event.thread = thread_;
  uint64_t passed = 0;
  uint64_t result = 0;
  if (!varint(&passed) || !varint(&event.duration) || !varint(&result) || result > UINT32_MAX) return false;
  event.time = last_ += static_cast<uint64_t>(unzigzag(passed));
  event.result = static_cast<uint32_t>(result);
  const KindFacts& facts = factsOf(event.kind);
  for (size_t i = 0; i < facts.fields; ++i)
    if (!field(facts.field[i].coding, &event, i)) return false;
  if (facts.parts != Parts::none && !parts(facts.parts, &event.parts)) return false;
  if (facts.text && !text(&event.text)) return false;
  events->push_back(std::move(event));
  return true;
}

}  // namespace weft::trace
