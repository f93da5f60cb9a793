// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>

#include "tools/perf/channels.h"

namespace weft::perf {

namespace {

constexpr size_t kStepsInFlight = 16;  // of all that share a comm (NCCL_MAX_SHARED_STEPS)

// Bytes on their way into a channel.
struct Outgoing {
  std::unique_ptr<netdriver::SendChannel> channel;
  std::span<const std::byte> left;
  size_t chunk = 0;  // of each message at most
  size_t messages = 0;

  void start(std::span<const std::byte> data, size_t slotBytes) {
    left = data;
    chunk = chunkOf(data.size(), slotBytes);
    messages = messagesOf(data.size(), chunk);
  }

  bool feed() {
    std::byte* slot = messages > 0 ? channel->freeSlot() : nullptr;
    if (slot == nullptr) return false;
    const size_t length = std::min(chunk, left.size());
    if (length > 0) std::memcpy(slot, left.data(), length);
    channel->commit(length);
    left = left.subspan(length);
    --messages;
    return true;
  }

  bool done() const { return messages == 0 && channel->idle(); }
};

// Bytes on their way out of one member of a channel.
struct Incoming {
  netdriver::RecvChannel* channel = nullptr;
  size_t member = 0;
  std::span<std::byte> left;

  void start(std::span<std::byte> data, size_t slotBytes) {
    left = data;
    channel->expect(messagesOf(data.size(), chunkOf(data.size(), slotBytes)), member);
  }

  bool drain() {
    if (!channel->ready(member)) return false;
    const auto message = channel->message(member);
    // A message of a wrong length leaves the output wrong, which is then counted; it must not overrun it.
    const size_t length = std::min(message.size(), left.size());
    if (length > 0) std::memcpy(left.data(), message.data(), length);
    left = left.subspan(length);
    channel->release(member);
    return true;
  }
};

// The common part of all operations made of sends and receives.
class Exchange : public Collective {
 public:
  Status progress(bool* moved) override {
    for (Outgoing& out : outgoing_) {
      if (out.feed()) *moved = true;
      TRY(out.channel->progress(moved));
    }
    for (Incoming& in : incoming_)
      if (in.drain()) *moved = true;
    for (auto& channel : receiving_) TRY(channel->progress(moved));
    return {};
  }

  bool done() const override {
    return std::all_of(outgoing_.begin(), outgoing_.end(), [](const Outgoing& out) { return out.done(); }) &&
           std::all_of(receiving_.begin(), receiving_.end(), [](const auto& in) { return in->idle(); });
  }

  uint64_t messages() const override {
    uint64_t sum = 0;
    for (const Outgoing& out : outgoing_) sum += out.channel->messages();
    for (const auto& channel : receiving_) sum += channel->messages();
    return sum;
  }

 protected:
  explicit Exchange(const Wiring& wiring) : rank_(wiring.rank), size_(wiring.size) {
    const auto group = static_cast<size_t>(wiring.group);
    shape_.slotBytes = wiring.p2pChunkBytes;
    shape_.slots = std::min(kSteps, kStepsInFlight / group);
    shape_.members = wiring.group;
  }

  // Each sender of the group has a channel over the same comm, and one channel receives all of them.
  Status connect(Wiring& wiring, int to, int from) {
    const auto comm = std::make_shared<netdriver::Comm>(std::move(wiring.to[static_cast<size_t>(to)]));
    auto shape = shape_;
    for (int member = 0; member < shape.members; ++member) {
      shape.tag = rank_ * shape.members + member;
      TRY(outgoing_.emplace_back().channel, netdriver::SendChannel::create(comm, shape));
    }
    shape.tag = from * shape.members;
    TRY(auto channel,
        netdriver::RecvChannel::create(std::move(wiring.from[static_cast<size_t>(from)]), shape));
    for (size_t member = 0; member < static_cast<size_t>(shape.members); ++member)
      incoming_.push_back({channel.get(), member, {}});
    receiving_.push_back(std::move(channel));
    return {};
  }

  int rank_;
  int size_;
  netdriver::ChannelShape shape_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::vector<std::unique_ptr<netdriver::RecvChannel>> receiving_;
};

class AllToAll final : public Exchange {
 public:
  explicit AllToAll(const Wiring& wiring) : Exchange(wiring) { shape_.members = 1; }

  // In NCCL's order: with every distance around the ranks.
  Status connectAll(Wiring& wiring) {
    for (int d = 1; d < size_; ++d) TRY(connect(wiring, (rank_ + d) % size_, (rank_ + size_ - d) % size_));
    return {};
  }

  void start(const Work& work) override {
    const size_t bytes = work.count * work.type->bytes;
    const size_t stride = work.stride * work.type->bytes;
    const auto at = [&](int rank) { return static_cast<size_t>(rank) * stride; };
    for (int d = 1; d < size_; ++d) {
      const auto i = static_cast<size_t>(d - 1);
      outgoing_[i].start({work.input + at((rank_ + d) % size_), bytes}, shape_.slotBytes);
      incoming_[i].start({work.output + at((rank_ + size_ - d) % size_), bytes}, shape_.slotBytes);
    }
    if (bytes > 0) std::memcpy(work.output + at(rank_), work.input + at(rank_), bytes);
  }
};

class SendRecv final : public Exchange {
 public:
  explicit SendRecv(const Wiring& wiring) : Exchange(wiring) {}

  Status connectRing(Wiring& wiring) {
    return connect(wiring, (rank_ + 1) % size_, (rank_ + size_ - 1) % size_);
  }

  // The last sender of a group also has what is left over, so it can be the only one in the last receive.
  void start(const Work& work) override {
    const size_t bytes = work.count * work.type->bytes;
    const size_t part = bytes / outgoing_.size();
    for (size_t m = 0; m < outgoing_.size(); ++m) {
      const size_t length = m + 1 < outgoing_.size() ? part : bytes - m * part;
      outgoing_[m].start({work.input + m * part, length}, shape_.slotBytes);
      incoming_[m].start({work.output + m * part, length}, shape_.slotBytes);
    }
  }
};

}  // namespace

Result<std::unique_ptr<Collective>> makeAllToAll(Wiring wiring) {
  auto made = std::make_unique<AllToAll>(wiring);
  TRY(made->connectAll(wiring));
  return made;
}

Result<std::unique_ptr<Collective>> makeSendRecv(Wiring wiring) {
  auto made = std::make_unique<SendRecv>(wiring);
  TRY(made->connectRing(wiring));
  return made;
}

}  // namespace weft::perf
