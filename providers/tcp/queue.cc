// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/queue.h"

#include <algorithm>

#include "providers/tcp/endpoint.h"
#include "src/base/advice.h"
#include "src/base/random.h"

namespace weft::tcp {

TcpQueue::TcpQueue(TcpDevice& device, const QueueDepths& wanted)
    : device_(device),
      regions_(device.regions()),
      depths_{std::max(wanted.sends, 1u), std::max(wanted.notifications, 1u), wanted.trafficClass},
      watch_(device.clock()) {}

TcpQueue::~TcpQueue() = default;

Result<std::unique_ptr<Endpoint>> TcpQueue::openEndpoint() {
  if (!doorman_.isOpen()) {
    TRY(const PortRange ports, parsePortRange(device_.config().portRange));
    TRY(doorman_.open(device_.address(), ports));
  }
  LaneAddress address;
  address.listensAt(doorman_.address());
  const auto set = static_cast<size_t>(device_.config().tcpStreams);
  address.streams = static_cast<uint8_t>(set > 0 ? std::min(set, kMostStreams) : kMostStreams);
  address.sealed = device_.protection().encrypt == Protection::Encrypt::all;
  address.lane = ++lastLane_;
  fillRandom(address.secret);
  auto lane = std::make_unique<TcpEndpoint>(*this, address);
  lanes_.push_back(lane.get());
  return std::unique_ptr<Endpoint>(std::move(lane));
}

// Small writes are finished when they are posted: that is told without a system call, every other time. And
// what arrived and was not asked for is bounded: with so much of it nothing more is read. While many works
// are being posted, a poll after one that read in vain reads nothing.
size_t TcpQueue::poll(std::span<Completion> out) {
  after_.beginPoll();
  if (burst_ > 0 && --burst_ > kFew && readInVain_ && ready_.empty() && after_.empty()) {
    readInVain_ = false;
    return 0;
  }
  const bool reportOnly = !ready_.empty() && !reportedOnly_;
  reportedOnly_ = reportOnly;
  if (!reportOnly && ready_.size() < depths_.notifications) {
    progress();
    readInVain_ = ready_.empty();
  }
  return emit(out);
}

void TcpQueue::progress() {
  if (!sending_.empty()) flushAll();
  watch_.each([this](Stream& stream) {
    const bool any = stream.receive(buffer_);
    if (stream.blocked()) [[unlikely]]
      flushLater(&stream);
    return any;
  });
  if (!pending_.empty() || doorman_.busy()) [[unlikely]]
    progressLanes();
}

void TcpQueue::flushAll() {
  for (size_t i = 0; i < sending_.size();) {
    Stream* stream = sending_[i];
    stream->flush();
    if (i >= sending_.size() || sending_[i] != stream) continue;  // it ended, and its lane's others maybe
    if (stream->blocked()) {
      i++;
      continue;
    }
    stream->sending = false;
    sending_.erase(sending_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void TcpQueue::flushLater(Stream* stream) {
  if (stream->sending) return;
  stream->sending = true;
  sending_.push_back(stream);
}

void TcpQueue::progressLanes() {
  const TimePoint now = device_.clock().now();
  progressDoor(now);
  std::erase_if(pending_, [now](TcpEndpoint* lane) { return !lane->progress(now); });
}

void TcpQueue::progressDoor(TimePoint now) {
  if (!doorman_.isOpen()) return;
  doorman_.attend(
      now,
      [this](Caller& caller) {
        const TcpEndpoint* lane = laneAskedFor(caller.hello);
        return lane ? lane->judge(caller) : Doorman::Verdict::turnAway;
      },
      [this](const Caller& caller, Fd fd) { laneAskedFor(caller.hello)->greeted(caller, std::move(fd)); });
}

TcpEndpoint* TcpQueue::laneAskedFor(const Hello& hello) const {
  const auto known = std::find_if(lanes_.begin(), lanes_.end(),
                                  [&](const TcpEndpoint* lane) { return lane->id() == hello.lane; });
  return known == lanes_.end() ? nullptr : *known;
}

void TcpQueue::progress(TcpEndpoint* lane) {
  if (std::find(pending_.begin(), pending_.end(), lane) == pending_.end()) pending_.push_back(lane);
}

void TcpQueue::forget(Stream* stream) {
  watch_.remove(stream);
  std::erase(sending_, stream);
  stream->sending = false;
}

void TcpQueue::forget(TcpEndpoint* lane) {
  std::erase(lanes_, lane);
  std::erase(pending_, lane);
  const auto ofOthers = [this, lane](const Completion& completion) {
    if (completion.source != lane) return true;
    handedOut(completion);
    return false;
  };
  ready_.keepIf(ofOthers);
  after_.eraseIf([&](const Completion& completion) { return !ofOthers(completion); });
}

void TcpQueue::reportAfter(const Completion& completion, std::string why) {
  after_.report(completion, std::move(why));
}

size_t TcpQueue::emit(std::span<Completion> out) {
  size_t count = 0;
  while (count < out.size() && !ready_.empty()) {
    out[count] = ready_.front();
    handedOut(out[count++]);
    ready_.pop();
  }
  if (!after_.empty() && ready_.empty()) [[unlikely]]
    count += takeAfter(out.subspan(count));
  return count;
}

size_t TcpQueue::takeAfter(std::span<Completion> out) {
  const size_t count = after_.take(out);
  for (const Completion& completion : out.first(count)) handedOut(completion);
  return count;
}

std::string TcpQueue::explain(const Completion& completion) const {
  if (const std::string* why = after_.wordsOf(completion)) return *why;
  return completion.ok ? "no error" : errnoWords(completion.error);
}

}  // namespace weft::tcp
