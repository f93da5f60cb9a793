// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstring>
#include <string>

#include "tools/trace/format.h"

// Writes events of one thread into blocks. No system call and no allocation while the block has room: the
// owner takes the block when it is full. Used by one thread at a time.
namespace weft::trace {

class Encoder {
 public:
  static constexpr size_t kBlockBytes = size_t{32} << 10;

  Encoder() : bytes_(kBlockBytes) {}

  // True where an event of these measures certainly fits.
  bool hasRoom(size_t parts, size_t text) const {
    return kBlockBytes - used_ >= 64 + kMostFields * 10 + parts * 40 + text;
  }
  bool empty() const { return used_ == 0; }

  void add(const Event& event) {
    if (used_ == 0) begin(event.time);
    const KindFacts& facts = factsOf(event.kind);
    bytes_[used_++] = static_cast<std::byte>(event.kind);
    // Calls of one thread come in order, but for those whose begin is told after what happened inside them.
    varint(zigzag(static_cast<int64_t>(event.time - last_)));
    last_ = event.time;
    varint(event.duration);
    varint(event.result);
    for (size_t i = 0; i < facts.fields; ++i) field(facts.field[i].coding, event, i);
    if (facts.parts != Parts::none) parts(facts.parts, event.parts);
    if (facts.text) text(event.text);
  }

  // The block with its head; the next event begins another.
  std::string take(uint32_t thread) {
    const std::span<const std::byte> body(bytes_.data(), used_);
    const std::string block = blockOf(thread, base_, body);
    used_ = 0;
    return block;
  }

  static std::string blockOf(uint32_t thread, uint64_t base, std::span<const std::byte> body) {
    BlockHead head;
    head.thread = thread;
    head.bytes = static_cast<uint32_t>(body.size());
    head.checksum = checksumOf(body);
    head.base = base;
    std::string block(sizeof(head) + body.size(), '\0');
    std::memcpy(block.data(), &head, sizeof(head));
    if (!body.empty()) std::memcpy(block.data() + sizeof(head), body.data(), body.size());
    return block;
  }

  static std::string fileHead() {
    std::string head(kMagic);
    head.push_back(static_cast<char>(kVersion & 0xff));
    head.push_back(static_cast<char>(kVersion >> 8));
    return head;
  }

 private:
  static uint64_t zigzag(int64_t value) {
    return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
  }

  void begin(uint64_t time) {
    base_ = last_ = time;
    for (auto& values : previous_) values = {};
  }

  void varint(uint64_t value) {
    while (value >= 0x80) {
      bytes_[used_++] = static_cast<std::byte>(value | 0x80);
      value >>= 7;
    }
    bytes_[used_++] = static_cast<std::byte>(value);
  }

  void field(Coding coding, const Event& event, size_t position) {
    const uint64_t value = event.values[position];
    switch (coding) {
      case Coding::plain:
        return varint(value);
      case Coding::zigzag:
        return varint(zigzag(static_cast<int64_t>(value)));
      case Coding::delta: {
        uint64_t& previous = previous_[static_cast<size_t>(event.kind)][position];
        varint(zigzag(static_cast<int64_t>(value - previous)));
        previous = value;
        return;
      }
      case Coding::fixed:
        std::memcpy(bytes_.data() + used_, &value, sizeof(value));
        used_ += sizeof(value);
    }
  }

  void parts(Parts how, const std::vector<Part>& parts) {
    varint(parts.size());
    for (const Part& part : parts) {
      varint(part.size);
      if (how == Parts::sizes) continue;
      varint(part.memory);
      varint(part.offset);
      varint(zigzag(part.tag));
    }
  }

  void text(std::string_view text) {
    varint(text.size());
    if (!text.empty()) std::memcpy(bytes_.data() + used_, text.data(), text.size());
    used_ += text.size();
  }

  std::vector<std::byte> bytes_;
  size_t used_ = 0;
  uint64_t base_ = 0;
  uint64_t last_ = 0;
  std::array<std::array<uint64_t, kMostFields>, kKinds> previous_{};
};

}  // namespace weft::trace
