// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
// The second half of Link: the watch over the peer's life, of its host and of its process apart.
#include <algorithm>

#include "src/base/log.h"
#include "src/control/link.h"

namespace weft::control {

namespace {

constexpr Milliseconds kLongestPing{1000};
constexpr Milliseconds kShortestPing{5};
constexpr Milliseconds kLongestUntilRedial{1500};
constexpr Milliseconds kLongestUntilHostWarn{3000};
constexpr Milliseconds kLongestSettling{120'000};  // TCP's longest pause

int toMilliseconds(Nanoseconds time) {
  return static_cast<int>(std::chrono::duration_cast<Milliseconds>(time).count());
}

}  // namespace

LifeTimes::LifeTimes(const Config& config)
    : ping(std::clamp(std::min(config.kernelTimeout / 3, config.peerSilentWarn / 4), kShortestPing,
                      kLongestPing)),
      silent(ping * 5 / 2),
      warn(config.peerSilentWarn),
      giveUp(config.peerTimeout),
      redial(std::min(config.kernelTimeout / 2, kLongestUntilRedial)),
      hostWarn(std::min(config.kernelTimeout / 2, kLongestUntilHostWarn)),
      kernel(config.kernelTimeout) {}

void Link::dialContact() {
  if (state_ == State::opening) return;
  kernelHeardBeforeContact_ = kernelHeard_;
  processHeardBeforeContact_ = processHeard_;
  kernelAnswered(owner_.loop().now());
}

void Link::dialMistaken() {
  if (state_ == State::opening) return;
  kernelHeard_ = kernelHeardBeforeContact_;
  processHeard_ = processHeardBeforeContact_;
}

// What a fabric over sockets held back during an outage may take as long again to come.
void Link::settleAfterOutage(TimePoint now) {
  const auto outage = std::min<Nanoseconds>(now - silentSince_, kLongestSettling);
  if (outage >= owner_.lifeTimes().redial) settlesAt_ = std::max(settlesAt_, now + outage);
  facts_.peer->setSettled(now >= settlesAt_);
}

void Link::heard() {
  processHeard_ = owner_.loop().now();
  facts_.peer->setAnswers(true);
  if (!warned_ && !hostWarned_) return;
  warned_ = hostWarned_ = false;
  WEFT_LOG(info, "%s answers again", facts_.peer->name().c_str());
}

// While a look is late, this process itself was stopped or starved, and could have heard nothing: that time
// says nothing about the peer, and is not counted.
void Link::look() {
  const TimePoint now = owner_.loop().now();
  const LifeTimes& times = owner_.lifeTimes();
  const auto late = now - lookDue_;
  kernelHeard_ = std::min(kernelHeard_ + late, now);
  processHeard_ = std::min(processHeard_ + late, now);
  fabricHeard_ = std::max(std::min(fabricHeard_ + late, now), facts_.peer->lastSeenOnFabric());
  if (state_ == State::up) facts_.peer->setSettled(now >= settlesAt_);
  lookAtKernel(now);
  if (state_ != State::dead) lookAtProcess(now);
  if (state_ == State::dead) return;
  if (io_ && now - lastPing_ >= times.ping) {
    lastPing_ = now;
    ping();
  }
  scheduleLook(now);
}

// Every ping must be acknowledged by the other kernel, whether or not the process reads it. When the
// connection we have is silent every address is tried afresh, until the bound: it is that long since switches
// fail over and virtual machines move in less.
void Link::lookAtKernel(TimePoint now) {
  const LifeTimes& times = owner_.lifeTimes();
  if (io_) noteAcks(now);
  const auto silence = now - kernelHeard_;
  if (now - hostHeard() >= times.kernel) return hostSilent(now);
  if (silence >= times.hostWarn && !hostWarned_) warnOfHost(now);
  if (io_ && silence >= times.redial)
    lose(format("nothing acknowledged for %d ms", static_cast<int>(times.redial.count())));
}

// With nothing outstanding the last ping was acknowledged, when is known. Else only news counts: repeated
// acknowledgements arrive also where nothing of ours gets through.
void Link::noteAcks(TimePoint now) {
  const auto acks = io_->acks();
  if (!acks) return;
  if (!acks->outstanding) {
    kernelAnswered(now - std::min(acks->sinceAck, owner_.lifeTimes().ping));
  } else if (acks->bytesAcked != bytesAcked_) {
    kernelAnswered(now - acks->sinceAck);
  }
  bytesAcked_ = acks->bytesAcked;
}

// While its host is silent the process cannot be heard. That time is not held against it, but for the part in
// which hosts are silent for other reasons: then even one that answers now and then is given up in the end.
void Link::kernelAnswered(TimePoint when) {
  if (when <= kernelHeard_) return;
  const auto outage = when - kernelHeard_ - owner_.lifeTimes().hostWarn;
  if (outage > Nanoseconds(0)) processHeard_ = std::min(processHeard_ + outage, when);
  kernelHeard_ = when;
}

void Link::warnOfHost(TimePoint now) {
  const LifeTimes& times = owner_.lifeTimes();
  hostWarned_ = true;
  const char* fabric =
      now - fabricHeard_ < times.redial ? "the fabric works" : "the fabric is silent as well";
  WEFT_LOG(warn,
           "the host of %s has acknowledged nothing for %d ms on the control network, %s; it is given up "
           "when both "
           "have been silent for %d ms (WEFT_KERNEL_TIMEOUT)",
           facts_.peer->name().c_str(), toMilliseconds(now - kernelHeard_), fabric,
           static_cast<int>(times.kernel.count()));
}

void Link::hostSilent(TimePoint now) {
  die(Error(Code::remote, "control link to " + facts_.peer->name(),
            format("its host has acknowledged nothing for %d ms, and the fabric is silent as well "
                   "(WEFT_KERNEL_TIMEOUT); it is down or cut off",
                   toMilliseconds(now - hostHeard()))));
}

void Link::lookAtProcess(TimePoint now) {
  const LifeTimes& times = owner_.lifeTimes();
  if (now - processHeard_ >= times.silent) facts_.peer->setAnswers(false);
  if (now - kernelHeard_ >= times.redial) return;  // its host is what is silent
  const auto silence = now - processHeard_;
  const int milliseconds = toMilliseconds(silence);
  if (silence >= times.giveUp) {
    return die(Error(
        Code::timeout, "control link to " + facts_.peer->name(),
        format("the process has not answered for %d ms (WEFT_PEER_TIMEOUT), its host does", milliseconds)));
  }
  if (silence < times.warn || warned_) return;
  warned_ = true;
  WEFT_LOG(
      warn,
      "%s has not answered for %d ms, but its host does; is the process stopped? It is given up after %d ms",
      facts_.peer->name().c_str(), milliseconds, static_cast<int>(times.giveUp.count()));
}

// The next ping, or earlier where a bound would pass unseen until then.
void Link::scheduleLook(TimePoint now) {
  const LifeTimes& times = owner_.lifeTimes();
  TimePoint next = now + times.ping;
  const auto sooner = [&](TimePoint due) {
    if (due > now) next = std::min(next, due);
  };
  if (io_) sooner(kernelHeard_ + times.redial);
  if (!hostWarned_) sooner(kernelHeard_ + times.hostWarn);
  sooner(hostHeard() + times.kernel);
  sooner(settlesAt_);
  sooner(processHeard_ + times.silent);
  sooner(processHeard_ + times.giveUp);
  if (!warned_) sooner(processHeard_ + times.warn);
  lookDue_ = next;
  lookTimer_.at(next);
}

}  // namespace weft::control
