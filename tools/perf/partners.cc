// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>

#include "tools/perf/channels.h"

// The measurement of two ranks that want to know a path and nothing else: how long a message takes, and how
// many of them go in a second. Messages are as large as the size, up to the slot of a connection.
namespace weft::perf {

namespace {

netdriver::ChannelShape shapeOf(const Wiring& wiring) {
  netdriver::ChannelShape shape;
  shape.slotBytes = wiring.bufferBytes / kSteps;
  shape.slots = kSteps;
  return shape;
}

// The data of one side, sent as often as wanted.
class Sender {
 public:
  Status connect(Wiring& wiring, int peer) {
    slotBytes_ = shapeOf(wiring).slotBytes;
    TRY(channel_, sendTo(wiring, peer, shapeOf(wiring)));
    return {};
  }
  void start(std::span<const std::byte> data, size_t times) {
    data_ = left_ = data;
    times_ = times;
  }
  Status progress(bool* moved) {
    if (!channel_) return {};
    while (times_ > 0) {
      std::byte* slot = channel_->freeSlot();
      if (slot == nullptr) break;
      const size_t length = std::min(slotBytes_, left_.size());
      if (length > 0) std::memcpy(slot, left_.data(), length);
      channel_->commit(length);
      left_ = left_.subspan(length);
      *moved = true;
      if (!left_.empty()) continue;
      left_ = data_;
      --times_;
    }
    return channel_->progress(moved);
  }
  bool done() const { return !channel_ || (times_ == 0 && channel_->idle()); }
  uint64_t messages() const { return channel_ ? channel_->messages() : 0; }

 private:
  std::unique_ptr<netdriver::SendChannel> channel_;
  size_t slotBytes_ = 0;
  std::span<const std::byte> data_;
  std::span<const std::byte> left_;
  size_t times_ = 0;
};

class Receiver {
 public:
  Status connect(Wiring& wiring, int peer) {
    slotBytes_ = shapeOf(wiring).slotBytes;
    TRY(channel_, receiveFrom(wiring, peer, shapeOf(wiring)));
    return {};
  }
  void start(std::span<std::byte> data, size_t times) {
    data_ = left_ = data;
    times_ = times;
    if (channel_) channel_->expect(times * messagesOf(data.size(), slotBytes_));
  }
  Status progress(bool* moved) {
    if (!channel_) return {};
    while (times_ > 0 && channel_->ready()) {
      const auto message = channel_->message();
      const size_t length =
          std::min(message.size(), left_.size());  // a wrong length is counted as wrong data
      if (length > 0) std::memcpy(left_.data(), message.data(), length);
      left_ = left_.subspan(length);
      channel_->release();
      *moved = true;
      if (!left_.empty() && length > 0) continue;
      left_ = data_;
      --times_;
    }
    return channel_->progress(moved);
  }
  bool done() const { return !channel_ || (times_ == 0 && channel_->idle()); }
  uint64_t messages() const { return channel_ ? channel_->messages() : 0; }

 private:
  std::unique_ptr<netdriver::RecvChannel> channel_;
  size_t slotBytes_ = 0;
  std::span<std::byte> data_;
  std::span<std::byte> left_;
  size_t times_ = 0;
};

class PingPong final : public Collective {
 public:
  Status connect(Wiring& wiring) {
    first_ = wiring.rank % 2 == 0;
    TRY(out_.connect(wiring, wiring.rank ^ 1));
    return in_.connect(wiring, wiring.rank ^ 1);
  }
  void start(const Work& work) override {
    const size_t bytes = work.count * work.type->bytes;
    input_ = {work.input, bytes};
    in_.start({work.output, bytes}, 1);
    answered_ = first_;
    if (first_) out_.start(input_, 1);
  }
  Status progress(bool* moved) override {
    TRY(in_.progress(moved));
    if (!answered_ && in_.done()) {
      answered_ = true;
      out_.start(input_, 1);
    }
    return out_.progress(moved);
  }
  bool done() const override { return answered_ && out_.done() && in_.done(); }
  uint64_t messages() const override { return out_.messages() + in_.messages(); }

 private:
  bool first_ = false;
  bool answered_ = false;
  std::span<const std::byte> input_;
  Sender out_;
  Receiver in_;
};

class MessageRate final : public Collective {
 public:
  Status connect(Wiring& wiring) {
    return wiring.rank % 2 == 0 ? out_.connect(wiring, wiring.rank + 1)
                                : in_.connect(wiring, wiring.rank - 1);
  }
  void start(const Work& work) override {
    const size_t bytes = work.count * work.type->bytes;
    out_.start({work.input, bytes}, kRateWindow);
    in_.start({work.output, bytes}, kRateWindow);
  }
  Status progress(bool* moved) override {
    TRY(in_.progress(moved));
    return out_.progress(moved);
  }
  bool done() const override { return out_.done() && in_.done(); }
  uint64_t messages() const override { return out_.messages() + in_.messages(); }

 private:
  Sender out_;
  Receiver in_;
};

template <class Kind>
Result<std::unique_ptr<Collective>> make(Wiring wiring) {
  auto made = std::make_unique<Kind>();
  TRY(made->connect(wiring));
  return std::unique_ptr<Collective>(std::move(made));
}

}  // namespace

Result<std::unique_ptr<Collective>> makePingPong(Wiring wiring) {
  return make<PingPong>(std::move(wiring));
}

Result<std::unique_ptr<Collective>> makeMessageRate(Wiring wiring) {
  return make<MessageRate>(std::move(wiring));
}

}  // namespace weft::perf
