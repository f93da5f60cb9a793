// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/engine_parts.h"

#include <atomic>
#include <optional>

#include "src/base/log.h"

namespace weft::core {

namespace {

std::atomic<uint32_t> nextEngine{1};

constexpr uint32_t kRequestLimit = 1 << 20;

// In the place of one whose card cannot be used.
class NoQueue : public Queue {
 public:
  size_t poll(std::span<Completion>) override { return 0; }
  Result<std::unique_ptr<Endpoint>> openEndpoint() override {
    return Error(Code::unavailable, "opening an endpoint", "the card could not be used");
  }
  std::string explain(const Completion&) const override { return {}; }
  QueueDepths depths() const override { return {0, 0, -1}; }
};

}  // namespace

EngineParts::EngineParts(EngineOptions options)
    : options_(std::move(options)),
      id_(nextEngine.fetch_add(1)),
      sequences_(options_.config->sequenceBits),
      arena_(options_.regions.get()),
      earlyMemory_(options_.regions.get(), options_.windows ? &options_.windows->room() : nullptr),
      requests_(kRequestLimit),
      slots_(kMaxSlots),
      putOffs_(UINT32_MAX) {}

PutOffFlush* EngineParts::takePutOff(CommBase* comm, mem::RegionRef region, uint64_t offset) {
  const std::lock_guard lock(putOffMutex_);
  PutOffFlush* flush = putOffs_.take();
  flush->kind = RequestKind::putOff;
  flush->reportedFailed = false;
  flush->departure = 1;
  flush->count = 1;
  flush->remaining = 1;
  flush->region = std::move(region);
  flush->offset = offset;
  flush->begun = nullptr;
  flush->comm = comm;
  return flush;
}

void EngineParts::givePutOff(PutOffFlush* flush) {
  const mem::RegionRef last = std::move(flush->region);  // goes after the lock: its cards may take long
  const std::lock_guard lock(putOffMutex_);
  flush->kind = RequestKind::none;
  flush->comm = nullptr;
  putOffs_.give(flush);
}

PutOffFlush* EngineParts::putOffOf(const CommBase* comm) {
  const std::lock_guard lock(putOffMutex_);
  for (uint32_t i = 0; i < putOffs_.size(); i++)
    if (putOffs_[i].comm == comm) return &putOffs_[i];
  return nullptr;
}

void EngineParts::dropPutOffs(const CommBase* comm) {
  while (PutOffFlush* flush = putOffOf(comm)) givePutOff(flush);
}

// The other cards take the share of a card that cannot be used. A lack of memory or descriptors is an error,
// as the user can mend it.
Status EngineParts::openQueues(Placer* placer) {
  QueueDepths depths = options_.depths;
  depths.trafficClass = options_.trafficClass;
  int64_t notifications = INT64_MAX;
  std::vector<uint8_t> working;
  std::optional<Error> refused;
  for (const auto& device : options_.devices) {
    auto queue = device->openQueue(depths);
    if (!queue && queue.error().code() == Code::resources) return queue.takeError();
    if (queue) {
      (*queue)->placeBy(placer);
      working.push_back(static_cast<uint8_t>(rails_.size()));
      notifications = std::min<int64_t>(notifications, (*queue)->depths().notifications);
    } else if (!refused) {
      refused = queue.takeError();
    }
    rails_.push_back({device, queue ? queue.take() : std::make_unique<NoQueue>()});
    queues_.push_back(rails_.back().queue.get());
  }
  if (working.empty()) return *std::move(refused);
  if (refused)
    WEFT_LOG(warn, "%s goes on with %zu of its %zu rails: %s", deviceName().c_str(), working.size(),
             rails_.size(), refused->message().c_str());
  shareOut(working);
  decideEager();
  if (queues_.size() == 1) onlyQueue_ = queues_.front();
  budget_.open(notifications, static_cast<uint64_t>(options_.config->eagerPoolMib) << 20);
  return {};
}

// Without a setting it is what suits the cards.
void EngineParts::decideEager() {
  gathersEager_ = std::any_of(rails_.begin(), rails_.end(),
                              [](const RailUse& rail) { return rail.device->info().postIsCall; });
  eagerMax_ = config().eagerMaxBytes;
  if (eagerMax_ >= 0) return;
  const auto less = [](const RailUse& a, const RailUse& b) {
    return a.device->info().eagerBytes < b.device->info().eagerBytes;
  };
  eagerMax_ = std::min_element(rails_.begin(), rails_.end(), less)->device->info().eagerBytes;
}

void EngineParts::shareOut(const std::vector<uint8_t>& working) {
  size_t next = 0;
  for (size_t rail = 0; rail < rails_.size(); rail++) {
    const bool works = std::find(working.begin(), working.end(), rail) != working.end();
    railInUse_.push_back(works ? static_cast<uint8_t>(rail) : working[next++ % working.size()]);
  }
}

void EngineParts::readClock() {
  now_ = options_.clock->now();
  nowIsFresh_ = true;
}

Result<std::unique_ptr<Endpoint>> EngineParts::openEndpoint(size_t rail) {
  auto opened = queues_[rail]->openEndpoint();
  if (!opened && opened.error().code() != Code::resources && rail < railCount()) cardLost_ = true;
  return opened;
}

// Its queue is polled from the first peer on that may be on this host.
Result<std::unique_ptr<Endpoint>> EngineParts::openLocalEndpoint() {
  if (queues_.size() == railCount()) {
    QueueDepths depths = options_.depths;
    TRY(auto queue, options_.local->openQueue(depths));
    rails_.push_back({options_.local, std::move(queue)});
    queues_.push_back(rails_.back().queue.get());
    onlyQueue_ = nullptr;
  }
  return queues_[localRail()]->openEndpoint();
}

}  // namespace weft::core
