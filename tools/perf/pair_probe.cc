// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/pair_probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sched.h>

namespace weft::perf {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPings = 200;
constexpr int kPingsToWarmUp = 20;
constexpr int kStreams = 8;
constexpr size_t kStreamMessage = size_t{128} << 10;
constexpr uint64_t kFewestMessages = 25;  // three times what is in flight
constexpr int kIdleSpins = 64;  // before the clock is read: on a busy machine a yield takes milliseconds

int64_t now() {
  return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
}

// The value that one in twenty stays below: other work on the machine makes many slower, a slow path all.
double lowest(std::vector<double> values) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 20);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace

// At the beginning of every message; the number again at the end of long ones.
struct PairProbe::Packet {
  uint64_t number;
  int64_t stamp;  // nanoseconds
};

Result<PairProbe> PairProbe::create(netdriver::Comm to, netdriver::Comm from, int rank, int peer,
                                    Milliseconds stall) {
  PairProbe probe;
  netdriver::ChannelShape shape;
  shape.slotBytes = kStreamMessage;
  shape.slots = 8;
  shape.tag = rank;
  TRY(probe.send_, netdriver::SendChannel::create(std::move(to), shape));
  shape.tag = peer;
  TRY(probe.receive_, netdriver::RecvChannel::create(std::move(from), shape));
  probe.stall_ = stall;
  return probe;
}

template <class F>
Status PairProbe::until(F&& done) {
  auto deadline = Clock::time_point::max();
  for (int idle = 0; !done();) {
    bool moved = false;
    TRY(send_->progress(&moved));
    TRY(receive_->progress(&moved));
    if (moved) {
      idle = 0;
      deadline = Clock::time_point::max();
      continue;
    }
    sched_yield();
    if (++idle < kIdleSpins) continue;
    if (deadline == Clock::time_point::max()) deadline = Clock::now() + stall_;
    if (Clock::now() > deadline)
      return Error(Code::timeout, "check cluster", "nothing moves between two ranks (--stall-timeout)");
  }
  return {};
}

Status PairProbe::send(size_t bytes, uint64_t number) {
  std::byte* slot = nullptr;
  TRY(until([&] { return (slot = send_->freeSlot()) != nullptr; }));
  std::memcpy(slot + bytes - sizeof(number), &number, sizeof(number));
  const Packet packet{number, now()};
  std::memcpy(slot, &packet, sizeof(packet));
  send_->commit(bytes);
  bool moved = false;
  return send_->progress(&moved);
}

Result<int64_t> PairProbe::receive(size_t bytes, uint64_t number, int64_t* stamp) {
  TRY(until([&] { return receive_->ready(); }));
  const int64_t arrived = now();
  const auto message = receive_->message();
  Packet packet{};
  uint64_t last = 0;
  if (message.size() >= sizeof(packet) + sizeof(last)) {
    std::memcpy(&packet, message.data(), sizeof(packet));
    std::memcpy(&last, message.data() + message.size() - sizeof(last), sizeof(last));
  }
  if (message.size() != bytes || packet.number != number || last != number)
    return Error(Code::internal, "check cluster", "a message arrived with wrong contents");
  *stamp = packet.stamp;
  receive_->release();
  return arrived;
}

Result<double> PairProbe::latency(bool begins) {
  constexpr size_t kBytes = sizeof(Packet) + sizeof(uint64_t);
  std::vector<double> times;
  receive_->expect(kPings + kPingsToWarmUp);
  for (int i = 0; i < kPings + kPingsToWarmUp; ++i) {
    const auto number = static_cast<uint64_t>(i);
    int64_t stamp = 0;
    if (begins) TRY(send(kBytes, number));
    TRY(const int64_t arrived, receive(kBytes, number, &stamp));
    if (!begins) TRY(send(kBytes, number));
    if (i >= kPingsToWarmUp) times.push_back(static_cast<double>(arrived - stamp) / 1e3);
  }
  TRY(until([&] { return send_->idle(); }));
  return lowest(std::move(times));
}

Result<double> PairProbe::bandwidth(bool sends, uint64_t bytes) {
  const size_t message = std::min<uint64_t>(kStreamMessage, bytes / kFewestMessages);
  const uint64_t messages = bytes / message + 1;
  double best = 0;
  for (int i = 0; i < kStreams; ++i) {
    TRY(const double rate, stream(sends, messages, message));
    best = std::max(best, rate);
  }
  return best;
}

Result<double> PairProbe::stream(bool sends, uint64_t messages, size_t bytes) {
  int64_t first = 0;
  int64_t last = 0;
  if (!sends) receive_->expect(messages);
  for (uint64_t i = 0; i < messages; ++i) {
    if (sends) {
      TRY(send(bytes, i));
      continue;
    }
    int64_t ignored = 0;
    TRY(last, receive(bytes, i, &ignored));
    if (i == 0) first = last;
  }
  TRY(until([&] { return send_->idle(); }));
  if (sends) return 0.0;
  return static_cast<double>((messages - 1) * bytes) /
         static_cast<double>(std::max<int64_t>(1, last - first));
}

}  // namespace weft::perf
