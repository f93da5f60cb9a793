// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/spread.h"

#include <algorithm>
#include <cmath>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "src/base/config.h"
#include "src/base/log.h"

namespace weft::tcp {

namespace {

constexpr Milliseconds kPause{100};  // between two looks
constexpr uint64_t kLeastBusyUs = 20'000;
constexpr double kEnough = 0.85;  // of the card's speed: headers and others take the rest
constexpr double kPays = 1.15;    // so much more than before, or it was for nothing

double mbps(uint64_t bytes, double us) {
  return us > 0 ? static_cast<double>(bytes) * 8 / us : 0;
}

FlowCounts since(const FlowCounts& now, const FlowCounts& before) {
  return {now.acked - before.acked, now.busyUs - before.busyUs, now.peerFullUs - before.peerFullUs,
          now.waits};
}

// The network alone held it up: neither the peer nor our own buffers did for long.
bool showsRate(const FlowCounts& flow) {
  return flow.waits && flow.busyUs >= kLeastBusyUs && flow.peerFullUs * 2 < flow.busyUs;
}

}  // namespace

FlowCounts flowCounts(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  return {info.tcpi_bytes_acked, info.tcpi_busy_time, info.tcpi_rwnd_limited, info.tcpi_notsent_bytes > 0};
}

// A connection that was not there at the last look has begun with nothing.
Spread::Rates Spread::ratesSince(TimePoint now, std::span<const FlowCounts> flows) const {
  Rates rates;
  uint64_t bytes = 0;
  for (size_t i = 0; i < flows.size(); i++) {
    const FlowCounts flow = i < last_.size() ? since(flows[i], last_[i]) : flows[i];
    bytes += flow.acked;
    if (showsRate(flow))
      rates.flow = std::max(rates.flow, mbps(flow.acked, static_cast<double>(flow.busyUs)));
  }
  const std::chrono::duration<double, std::micro> time = now - looked_;
  rates.total = mbps(bytes, time.count());
  return rates;
}

size_t Spread::wanted(const Rates& rates, size_t flows) const {
  if (speedMbps_ == 0) return 2 * flows;
  if (rates.total >= kEnough * speedMbps_) return flows;
  return std::max(flows, static_cast<size_t>(std::ceil(speedMbps_ / rates.flow)));
}

size_t Spread::look(TimePoint now, std::span<const FlowCounts> flows) {
  const size_t known = last_.size();
  const Rates rates = known == 0 ? Rates{} : ratesSince(now, flows);
  due_ = now + kPause;
  looked_ = now;
  last_.assign(flows.begin(), flows.end());
  if (rates.flow == 0) return 0;
  if (state_ == State::trying) {
    if (flows.size() <= tried_ || flows.size() != known) return 0;  // some have come just now, or none
    state_ = rates.total >= kPays * before_.total ? State::measuring : State::settled;
    return 0;
  }
  const size_t number = wanted(rates, flows.size());
  if (number <= flows.size()) return 0;
  state_ = State::trying;
  tried_ = flows.size();
  before_ = rates;
  return number + 1;
}

std::string Spread::why() const {
  const std::string flow = format("one flow carries %.0f Mb/s", before_.flow);
  if (speedMbps_ == 0) return flow + ", and the speed of the card is not known";
  return flow + format(" of the card's %d", speedMbps_);
}

std::string connectionsText(size_t fixed, int speedMbps, size_t most) {
  if (fixed > 0) return format("%zu connections a peer, by WEFT_TCP_STREAMS", std::min(fixed, most));
  const std::string more =
      format("%zu connections a peer; up to %zu once a job measures that ", Spread::kFirst, most);
  if (speedMbps > 0) return more + format("one flow carries too little for %d Mb/s", speedMbps);
  return more +
         "more of them carry more, since the kernel does not say the card's speed (WEFT_TCP_SPEED does)";
}

}  // namespace weft::tcp
