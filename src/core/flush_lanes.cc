// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/flush_lanes.h"

#include <algorithm>
#include <optional>

#include "src/core/work_context.h"

namespace weft::core {

FlushLanes::FlushLanes(EngineParts& parts, PathOwner& owner)
    : parts_(parts), owner_(owner), lanes_(*this, parts.config(), true) {}

TimePoint FlushLanes::now() {
  return parts_.readNow();
}

Result<std::unique_ptr<Endpoint>> FlushLanes::openEndpoint(size_t rail) {
  TRY(auto endpoint, parts_.openEndpoint(rail));
  const auto address = endpoint->address();
  TRY(endpoint->connect(address));
  endpoint->peerConnected();
  return endpoint;
}

// A card that is dead now is tried again later; without any there is nothing to flush by.
Status FlushLanes::open() {
  if (lanes_.size() > 0) return {};
  TRY(scratch_, parts_.arena().take(64 * parts_.railCount()));
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::optional<Error> refused;
  bool any = false;
  for (size_t rail = 0; rail < parts_.railCount(); rail++) {
    auto endpoint = openEndpoint(parts_.railInUse(rail));
    if (!endpoint && !refused) refused = endpoint.takeError();
    any = any || endpoint;
    endpoints.push_back(endpoint ? endpoint.take() : nullptr);
  }
  if (!any) return *std::move(refused);
  for (size_t rail = 0; rail < endpoints.size(); rail++) {
    const size_t used = parts_.railInUse(rail);
    lanes_.add(static_cast<uint8_t>(used), parts_.railInfo(used).name, std::move(endpoints[rail]),
               endpoints.size());
  }
  return {};
}

// Data may come by a rail before our own lane over it is up. So a flush waits for a lane that connects, and
// opens one that was lost, as long as some peering has a lane up on that rail. Where none has, the data that
// came by the rail landed long ago, and the lane is left out.
bool FlushLanes::post(Request* request, const mem::RegionRef& region, uint64_t offset) {
  request->remaining = 0;
  for (size_t i = 0; i < lanes_.size(); i++) {
    Lane& lane = lanes_.at(i);
    SegmentInFlight& waits = request->segments[i];
    waits = {lane.number(), 0, true, 0};
    if (!lane.up() && lane.state() != LaneState::connecting) {
      if (!owner_.carries(lane.rail())) continue;
      lanes_.reopen(lane);
    }
    waits.done = false;
    request->remaining++;
    const Read read{request->index, request->generation, lane.number(), region, offset, parts_.now()};
    if (!lane.up() && lane.state() != LaneState::connecting) {
      held_.push_back(read);
    } else if (!submit(lane, read)) {
      return false;
    }
  }
  return request->remaining > 0;
}

bool FlushLanes::submit(Lane& lane, const Read& read) {
  auto target = lane.endpoint().import(read.region->rail(lane.rail())->blob());
  if (!target) return false;
  Work work;
  work.op = Opcode::read;
  work.local = scratch_.data() + size_t{64} * lane.number();
  work.length = 1;
  work.memory = scratch_.region()->rail(lane.rail());
  work.remote = *target;
  work.remoteOffset = read.offset;
  work.context = workContext(WorkKind::flush, read.request, read.generation, lane.number());
  if (!lane.submit(work, false, parts_)) parts_.flushSoon();
  return true;
}

void FlushLanes::laneUp(Lane&) {
  parts_.flushSoon();
}

void FlushLanes::laneReopened(Lane& lane) {
  std::vector<Read> held;
  held.swap(held_);
  for (Read& read : held) {
    Request* request = waitingFor(read);
    if (read.lane != lane.number()) {
      held_.push_back(std::move(read));
    } else if (request && !submit(lane, read)) {
      fail(request, lane, "its card does not know the memory");
    }
  }
}

Request* FlushLanes::waitingFor(const Read& read) {
  Request& request = parts_.requestAt(read.request);
  const bool waits = request.kind == RequestKind::flush && request.generation == read.generation &&
                     request.remaining > 0 && !request.segments[read.lane].done;
  return waits ? &request : nullptr;
}

void FlushLanes::finished(const Completion& completion) {
  const auto number = static_cast<uint8_t>(completion.context >> 56 & 15);
  Lane* lane = lanes_.find(number);
  if (!lane) return;
  lane->finished(1, parts_);
  const auto generation = static_cast<uint16_t>(completion.context >> 32 & 0xffff);
  Request* request =
      waitingFor({static_cast<uint32_t>(completion.context), generation, number, nullptr, 0, {}});
  if (!request || !completion.ok) return;
  request->segments[number].done = true;
  request->remaining--;
}

// A read that failed, or does not come back, says nothing of what it was to make visible: it is never done,
// and ends its comm.
void FlushLanes::laneLost(Lane& lane) {
  parts_.eachRequest([&](Request& request) {
    if (request.kind != RequestKind::flush || request.remaining == 0) return;
    if (!request.segments[lane.number()].done) fail(&request, lane, lane.cause());
  });
}

void FlushLanes::watch(TimePoint now) {
  lanes_.watch(now, true, true);
  const auto late = [&](const Read& read) {
    if (now - read.since < lanes_.patience()) return false;
    const Lane& lane = lanes_.at(read.lane);
    if (Request* request = waitingFor(read)) fail(request, lane, "it does not come up: " + lane.cause());
    return true;
  };
  std::erase_if(held_, late);
}

void FlushLanes::fail(Request* request, const Lane& lane, const std::string& why) const {
  request->reportedFailed = true;
  owner_.endComm(*request, {Ending::By::us, Error(Code::system, "flushing",
                                                  "the loopback lane of " + lane.railName() + ": " + why)});
}

}  // namespace weft::core
