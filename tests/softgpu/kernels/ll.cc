// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>

#include "tests/softgpu/kernels/fault.h"
#include "tests/softgpu/kernels/primitive.h"

namespace softgpu {

namespace {

// Eight bytes of data in a line of sixteen: each half carries four, and a flag that says whose turn it is.
struct Line {
  uint64_t halves[2];
};
static_assert(sizeof(Line) == 16);
constexpr size_t kDataBytes = 8;

// Before flags come round, every line of a step is written once.
constexpr uint64_t kCleanMask = 0x7ffffff8;

struct Lane {
  char* connection = nullptr;
  uint64_t step = 0;
  uint64_t* head = nullptr;
  char* fifo = nullptr;
  Line* buffer = nullptr;

  uint32_t flag() const { return static_cast<uint32_t>(step + 1); }
};

class LL : public Primitive {
 public:
  LL(Block& block, const Reduction& reduction, const Ends& ends)
      : block_(block), reduction_(reduction), ends_(ends) {
    for (const int peer : ends.receiveFrom) receives_.push_back(open(peer, true));
    for (const int peer : ends.sendTo) sends_.push_back(open(peer, false));
    stepLines_ = static_cast<size_t>(block.bufferSize(kLL)) / kSteps / sizeof(Line);
    perLine_ = kDataBytes / reduction.size();
  }

  void run(const Operation& operation) override {
    const auto count = static_cast<size_t>(std::max<ptrdiff_t>(operation.count, 0));
    const size_t lines = (count + perLine_ - 1) / perLine_;
    if (operation.send && !mayTake(lines)) return;
    if (lines > 0) beSlow(block_);
    for (size_t line = 0; line < lines; ++line) {
      if (!runLine(operation, line, std::min(perLine_, count - line * perLine_))) return;
    }
    if (operation.receive) {
      for (auto& lane : receives_) writeShared(lane.head, ++lane.step);
    }
    if (operation.send) {
      for (auto& lane : sends_) {
        if ((lane.step & kCleanMask) == kCleanMask) clean(lane, lines);
        ++lane.step;
      }
    }
  }

  void finish() override {
    for (auto* lanes : {&receives_, &sends_}) {
      for (auto& lane : *lanes) field<uint64_t>(lane.connection, block_.layout().step) = lane.step;
    }
  }

 private:
  Lane open(int peer, bool receive) const {
    const Layout& layout = block_.layout();
    Lane lane;
    lane.connection = block_.connection(peer, receive, ends_.index);
    lane.step = field<uint64_t>(lane.connection, layout.step);
    lane.head = viewAs<uint64_t>(field<void*>(lane.connection, layout.head));
    lane.fifo = viewAs<char>(field<void*>(lane.connection, layout.fifo));
    lane.buffer = viewAs<Line>(field<void*>(lane.connection, layout.buffers + kLL * 8));
    return lane;
  }

  Line* slot(const Lane& lane) const { return lane.buffer + (lane.step % kSteps) * stepLines_; }

  // Waits for a free step of each peer and tells its proxy how much will come.
  bool mayTake(size_t lines) {
    for (auto& lane : sends_) {
      if (!waitUntil(block_, [&] { return readShared(lane.head) + kSteps >= lane.step + 1; })) return false;
      if (lane.fifo == nullptr) continue;
      const size_t told = (lane.step & kCleanMask) == kCleanMask ? stepLines_ : lines;
      writeShared(reinterpret_cast<int64_t*>(lane.fifo + (lane.step % kSteps) * kFifoEntrySize + 8),
                  static_cast<int64_t>(told * sizeof(Line)));
    }
    return true;
  }

  // Data of both halves, once both have this step's flag.
  bool read(const Lane& lane, size_t index, uint64_t& data) {
    const Line* const line = slot(lane) + index;
    uint64_t halves[2];
    const bool come = waitUntil(block_, [&] {
      for (int half = 0; half < 2; ++half) halves[half] = readShared(&line->halves[half]);
      return halves[0] >> 32 == lane.flag() && halves[1] >> 32 == lane.flag();
    });
    data = (halves[0] & 0xffffffff) | halves[1] << 32;
    return come;
  }

  static void write(Line* line, uint64_t data, uint32_t flag) {
    writeShared(&line->halves[0], (data & 0xffffffff) | uint64_t{flag} << 32);
    writeShared(&line->halves[1], data >> 32 | uint64_t{flag} << 32);
  }

  void clean(const Lane& lane, size_t from) {
    for (size_t line = from; line < stepLines_; ++line) write(slot(lane) + line, 0, lane.flag());
  }

  bool runLine(const Operation& operation, size_t line, size_t count) {
    const size_t at = line * kDataBytes, bytes = count * reduction_.size();
    uint64_t data = 0;
    bool have = false;
    if (operation.source != nullptr) {
      std::memcpy(&data, operation.source + at, bytes);
      if (operation.ownInput && reduction_.hasBefore()) reduction_.before(&data, &data, count);
      have = true;
    }
    if (operation.receive) {
      for (const auto& lane : receives_) {
        uint64_t other = 0;
        if (!read(lane, line, other)) return false;
        if (have) reduction_.reduce(&data, &other, &data, count);
        if (!have) data = other;
        have = true;
      }
    }
    if (operation.last && reduction_.hasAfter()) reduction_.after(&data, count);
    if (operation.send) {
      for (const auto& lane : sends_) write(slot(lane) + line, data, lane.flag());
    }
    if (operation.target != nullptr) std::memcpy(operation.target + at, &data, bytes);
    return true;
  }

  Block& block_;
  const Reduction& reduction_;
  const Ends ends_;
  std::vector<Lane> receives_, sends_;
  size_t stepLines_ = 0;
  size_t perLine_ = 1;
};

}  // namespace

std::unique_ptr<Primitive> makeLL(Block& block, const Reduction& reduction, const Ends& ends) {
  return std::make_unique<LL>(block, reduction, ends);
}

}  // namespace softgpu
