// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/pair_probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sched.h>

#include "tools/perf/samples.h"

namespace weft::perf {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPings = 200;
constexpr int kPingsToWarmUp = 20;
constexpr int kStreams = 8;
constexpr uint64_t kFewestMessages = 25;  // three times what is in flight
constexpr int kIdleSpins = 64;  // before the clock is read: on a busy machine a yield takes milliseconds

int64_t now() {
  return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
}

// The value that one in twenty stays below: other work on the machine makes many slower, a slow path all.
double lowest(std::vector<double> values) {
  return valueAt(std::move(values), 20);
}

// The calling thread stays on one of the processors that it may use, the last one where they are fewer, as
// long as this lives.
class OnProcessor {
 public:
  explicit OnProcessor(size_t index) {
    CPU_ZERO(&before_);
    if (sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
    size_t chosen = 0;
    for (size_t at = 0, usable = 0; at < CPU_SETSIZE && usable <= index; ++at)
      if (CPU_ISSET(at, &before_)) {
        chosen = at;
        ++usable;
      }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(chosen, &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
  }
  ~OnProcessor() { (void)sched_setaffinity(0, sizeof(before_), &before_); }
  OnProcessor(const OnProcessor&) = delete;
  OnProcessor& operator=(const OnProcessor&) = delete;

 private:
  cpu_set_t before_{};
};

}  // namespace

const PairProbe::Stream PairProbe::kNear{48, kCostMessage / 2, size_t{1} << 20};
const PairProbe::Stream PairProbe::kFar{24, kCostMessage, size_t{64} << 20};

// At the beginning of every message; the number again at the end of long ones.
struct PairProbe::Packet {
  uint64_t number;
  int64_t stamp;  // nanoseconds
};

Result<PairProbe> PairProbe::create(Ends ends, Milliseconds stall) {
  PairProbe probe;
  netdriver::ChannelShape shape;
  shape.slotBytes = ends.largest;
  shape.slots = 8;
  shape.tag = ends.rank;
  TRY(probe.send_, netdriver::SendChannel::create(std::move(ends.to), shape));
  shape.tag = ends.peer;
  TRY(probe.receive_, netdriver::RecvChannel::create(std::move(ends.from), shape));
  probe.stall_ = stall;
  return probe;
}

template <class F>
Status PairProbe::until(F&& done) {
  auto deadline = Clock::time_point::max();
  for (int idle = 0; !done();) {
    bool moved = false;
    const int64_t began = stamp();
    TRY(pass(&moved));
    if (moved) {
      idle = 0;
      deadline = Clock::time_point::max();
      continue;
    }
    sched_yield();
    if (passes_) passes_->withYield.push_back(static_cast<double>(stamp() - began));
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
  if (!data_.empty()) std::memcpy(slot, nextData(bytes), bytes);
  std::memcpy(slot + bytes - sizeof(number), &number, sizeof(number));
  const Packet packet{number, now()};
  std::memcpy(slot, &packet, sizeof(packet));
  send_->commit(bytes);
  bool moved = false;
  const int64_t began = stamp();
  TRY(send_->progress(&moved));
  if (!passes_) return {};
  passes_->sends.push_back(static_cast<double>(stamp() - began));
  passes_->total += passes_->sends.back();
  return {};
}

// By the clock of the passes that are noted; 0 where none are.
int64_t PairProbe::stamp() const {
  if (!passes_) return 0;
  return passes_->clock == Passes::Clock::wall ? now() : processorTime(CLOCK_THREAD_CPUTIME_ID);
}

Status PairProbe::pass(bool* moved) {
  const int64_t began = stamp();
  TRY(send_->progress(moved));
  TRY(receive_->progress(moved));
  if (!passes_) return {};
  const auto took = static_cast<double>(stamp() - began);
  if (receive_->ready()) passes_->finds.push_back(took);
  if (!*moved) passes_->looks.push_back(took);
  passes_->total += took;
  passes_->inVain += *moved ? 0 : 1;
  return {};
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
  if (!data_.empty()) std::memcpy(nextData(bytes), message.data(), bytes);
  receive_->release();
  return arrived;
}

Result<double> PairProbe::latency(bool begins) {
  TRY(auto times, pings(begins));
  return lowest(std::move(times));
}

Result<std::vector<double>> PairProbe::pings(bool begins) {
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
  return times;
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

// Where both ends are on one host, both have the same processors. On two of them the time is that of a
// message whose receiver happens to look as it comes; on one, the receiver's turn comes with every message.
Result<EndCosts> PairProbe::costs(bool begins) {
  EndCosts costs;
  TRY(smallCosts(begins, &costs));
  TRY(auto apart, pingsOn(begins ? 0 : 1, begins));
  costs.stepUs = std::min(costs.stepUs, lowest(std::move(apart)));
  TRY(auto shared, pingsOn(0, begins));
  costs.sharedStepUs = median(std::move(shared));
  // Of ranks that never had two processors the other one's turn is in the time of a look.
  const double turn = costs.sharedStepUs - costs.sendUs - costs.receiveUs;
  costs.lookUs = std::min(costs.lookUs, std::max(costs.testUs, turn));
  TRY(costs.near, rates(begins, kNear, costs));
  TRY(costs.far, rates(begins, kFar, costs));
  return costs;
}

Result<std::vector<double>> PairProbe::pingsOn(size_t processor, bool begins) {
  const OnProcessor scope(processor);
  return pings(begins);
}

// Nanoseconds a byte of the passes of `run`, which moves such a stream. A pass that finds no whole message
// may still move bytes, so all passes count.
template <class F>
Result<double> PairProbe::costOf(const Stream& of, double messageUs, F&& run) {
  Passes passes;
  passes.clock = Passes::Clock::processor;
  passes_ = &passes;
  TRY(run());
  passes_ = nullptr;
  return passes.movingCost(of, messageUs);
}

// A stream in one direction tells what a byte costs the sender and what the receiver. Where both ends do both
// at once, as in a ring, they also contend for the memory.
Result<EndCosts::Rates> PairProbe::rates(bool begins, const Stream& of, const EndCosts& small) {
  data_.resize(of.memory);
  std::vector<double> sending;
  std::vector<double> receiving;
  std::vector<double> both;
  for (int i = 0; i < kStreams; ++i) {
    for (const bool sends : {begins, !begins}) {
      TRY(const double cost, costOf(of, sends ? small.sendUs : small.receiveUs,
                                    [&] { return stream(sends, of.messages, of.bytes); }));
      (sends ? sending : receiving).push_back(cost);
    }
    TRY(const double cost, costOf(of, small.sendUs + small.receiveUs, [&] { return exchange(of); }));
    both.push_back(cost);
  }
  const double send = median(std::move(sending));
  const double receive = median(std::move(receiving));
  const double contention = median(std::move(both)) / (send + receive);
  return EndCosts::Rates{1 / (send * contention), 1 / (receive * contention)};
}

std::byte* PairProbe::nextData(size_t bytes) {
  if (at_ + bytes > data_.size()) at_ = 0;
  at_ += bytes;
  return data_.data() + at_ - bytes;
}

Status PairProbe::smallCosts(bool begins, EndCosts* costs) {
  Passes small;
  passes_ = &small;
  TRY(costs->stepUs, latency(begins));
  passes_ = nullptr;
  costs->sendUs = median(small.sends) / 1e3;
  costs->receiveUs = median(small.finds) / 1e3;
  // A processor that something else is on may always have been too late to look in vain.
  costs->testUs = small.looks.empty() ? costs->receiveUs : median(small.looks) / 1e3;
  costs->lookUs = small.withYield.empty() ? costs->receiveUs : median(small.withYield) / 1e3;
  return {};
}

// Each end has a message or two on the way to the other one.
Status PairProbe::exchange(const Stream& of) {
  receive_->expect(of.messages);
  for (uint64_t i = 0; i <= of.messages; ++i) {
    if (i < of.messages) TRY(send(of.bytes, i));
    int64_t ignored = 0;
    if (i > 0) TRY(receive(of.bytes, i - 1, &ignored));
  }
  return until([&] { return send_->idle(); });
}

// Without the messages' own time and that of looks in vain.
double PairProbe::Passes::movingCost(const Stream& of, double messageUs) const {
  const auto messages = static_cast<double>(of.messages);
  const double bytes = messages * static_cast<double>(of.bytes);
  const double look = looks.empty() ? 0 : lowest(looks);
  const double moving = total - static_cast<double>(inVain) * look - messages * 1e3 * messageUs;
  return std::max(moving, bytes / 1e3) / bytes;
}

void EndCosts::better(const EndCosts& other) {
  const auto less = [](double& mine, double theirs) {
    if (theirs > 0 && (mine == 0 || theirs < mine)) mine = theirs;
  };
  less(sendUs, other.sendUs);
  less(receiveUs, other.receiveUs);
  less(testUs, other.testUs);
  less(lookUs, other.lookUs);
  less(stepUs, other.stepUs);
  less(sharedStepUs, other.sharedStepUs);
  for (Rates EndCosts::*const rates : {&EndCosts::near, &EndCosts::far}) {
    (this->*rates).sendGBps = std::max((this->*rates).sendGBps, (other.*rates).sendGBps);
    (this->*rates).receiveGBps = std::max((this->*rates).receiveGBps, (other.*rates).receiveGBps);
  }
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
