// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "providers/common/rare_events.h"
#include "providers/tcp/device.h"
#include "providers/tcp/doorman.h"
#include "providers/tcp/ring.h"
#include "providers/tcp/stream.h"
#include "providers/tcp/watch.h"
#include "src/base/clock.h"
#include "weft/transport.h"

// All lanes of one engine over one interface: their connections, the socket that peers dial, and what is to
// be reported. Polling it is all that moves data. One thread at a time.
namespace weft::tcp {

class TcpEndpoint;

class TcpQueue : public Queue {
 public:
  TcpQueue(TcpDevice& device, const QueueDepths& wanted);
  ~TcpQueue() override;

  size_t poll(std::span<Completion> out) override;
  Result<std::unique_ptr<Endpoint>> openEndpoint() override;
  std::string explain(const Completion& completion) const override;
  void placeBy(Placer* placer) override { placer_ = placer; }
  QueueDepths depths() const override { return depths_; }

  // For its lanes.
  TcpDevice& device() const { return device_; }
  KeyTable& regions() const { return *regions_; }
  Placer* placer() const { return placer_; }
  bool hasRoom() const { return works_ < depths_.sends; }
  void workPosted() {
    works_++;
    if (burst_ < kMostBurst) burst_++;
  }
  void workGone() { works_--; }  // nobody is told
  void report(const Completion& completion) { ready_.push(completion); }
  // After all that was reported by then: what failed, with its words, and the end of a lane.
  void reportAfter(const Completion& completion, std::string why);
  void progress(TcpEndpoint* lane);  // from the next poll on
  void read(Stream* stream) { watch_.add(stream); }
  void flushLater(Stream* stream);
  void forget(Stream* stream);
  void forget(TcpEndpoint* lane);

 private:
  static constexpr uint32_t kMostBurst = 32;
  static constexpr uint32_t kFew = 2;  // who posts no more waits for an answer soon

  void progress();
  void flushAll();
  void progressLanes();
  void progressDoor(TimePoint now);
  size_t emit(std::span<Completion> out);
  size_t takeAfter(std::span<Completion> out);
  void handedOut(const Completion& completion) { works_ -= completion.kind == CompletionKind::sent; }
  TcpEndpoint* laneAskedFor(const Hello& hello) const;

  TcpDevice& device_;
  const std::shared_ptr<KeyTable> regions_;
  const QueueDepths depths_;
  Placer* placer_ = nullptr;  // says where messages land; null: none may come
  size_t works_ = 0;          // posted, and not yet reported or forgotten
  uint64_t lastLane_ = 0;
  bool reportedOnly_ = false;  // the last poll read nothing
  bool readInVain_ = false;    // the last read found nothing
  uint32_t burst_ = 0;         // works that were posted, less the polls since

  Doorman doorman_;
  Watch watch_;
  Stream::Buffer buffer_;
  std::vector<TcpEndpoint*> lanes_;
  std::vector<TcpEndpoint*> pending_;
  std::vector<Stream*> sending_;  // have something that the kernel did not take

  Ring<Completion> ready_;
  RareEvents after_;  // handed out when nothing of those is left
};

}  // namespace weft::tcp
