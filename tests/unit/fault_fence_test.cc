// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <utility>

#include "providers/fault/transport.h"
#include "tests/support/catch.h"

// What the fault injector hands on of a lane that its fabric cannot fence: only EFA's are so by themselves,
// so the fabric below is played.
using namespace weft;

namespace {

using enum CompletionKind;

class Stubborn : public Queue {
 public:
  size_t poll(std::span<Completion> out) override {
    size_t n = 0;
    for (; n < out.size() && !ready.empty(); ready.pop_front()) out[n++] = ready.front();
    return n;
  }
  Result<std::unique_ptr<Endpoint>> openEndpoint() override;
  std::string explain(const Completion&) const override { return "it is stubborn"; }
  QueueDepths depths() const override { return {}; }

  std::deque<Completion> ready;
};

// Takes all and finishes nothing; fenced only once it is cut.
class StubbornLane : public Endpoint {
 public:
  explicit StubbornLane(Stubborn& queue) : queue_(queue) {}
  std::span<const std::byte> address() const override { return address_; }
  Status connect(std::span<const std::byte>) override {
    queue_.ready.push_back({.kind = connected, .source = this});
    return {};
  }
  Result<RemoteMemory> import(std::span<const std::byte>) override { return RemoteMemory{}; }
  size_t post(std::span<const Work> works) override { return works.size(); }
  void retire() override {
    queue_.ready.push_back({.kind = retired, .ok = false, .error = EBUSY, .source = this});
  }
  bool cut() override {
    queue_.ready.push_back({.kind = retired, .source = this});
    return true;
  }

 private:
  Stubborn& queue_;
  std::array<std::byte, 1> address_{};
};

Result<std::unique_ptr<Endpoint>> Stubborn::openEndpoint() {
  return std::unique_ptr<Endpoint>(std::make_unique<StubbornLane>(*this));
}

class StubbornDevice : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<Memory>> registerMemory(const MemoryDesc&) override {
    return Error(Code::unavailable, "registering memory", "there is none");
  }
  Result<std::unique_ptr<Queue>> openQueue(const QueueDepths&) override {
    return std::unique_ptr<Queue>(std::make_unique<Stubborn>());
  }

 private:
  DeviceInfo info_{.name = "stubborn0"};
};

class StubbornTransport : public Transport {
 public:
  std::string name() const override { return "stubborn"; }
  std::string version() const override { return {}; }
  Result<std::vector<DeviceInfo>> discover() override { return std::vector{StubbornDevice().info()}; }
  std::vector<Refusal> refusals() const override { return {}; }
  Result<std::shared_ptr<Device>> open(const DeviceInfo&) override {
    return std::shared_ptr<Device>(std::make_shared<StubbornDevice>());
  }
};

struct Scene {
  explicit Scene(fault::FaultOptions options = {})
      : transport(fault::makeTransport(std::make_unique<StubbornTransport>(), std::move(options))) {
    device = transport->open(transport->discover()->front()).take();
    queue = device->openQueue({}).take();
    lane = queue->openEndpoint().take();
    REQUIRE(lane->connect(lane->address()));
    REQUIRE(next().kind == connected);
  }
  Completion next() {
    Completion found{.kind = notified};  // nothing came
    (void)queue->poll({&found, 1});
    return found;
  }

  std::unique_ptr<fault::FaultTransport> transport;
  std::shared_ptr<Device> device;
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Endpoint> lane;
};

void checkRefused(Scene& scene) {
  const Completion refused = scene.next();
  CHECK(refused.kind == retired);
  CHECK(refused.source == scene.lane.get());
  CHECK_FALSE(refused.ok);
  CHECK(refused.error == EBUSY);
  CHECK(scene.queue->explain(refused) == "it is stubborn");
}

}  // namespace

TEST_CASE("a fence that failed below has failed, and cut makes up for it") {
  Scene scene;
  scene.lane->retire();
  checkRefused(scene);
  REQUIRE(scene.lane->cut());
  const Completion fenced = scene.next();
  CHECK(fenced.kind == retired);
  CHECK(fenced.ok);
}

TEST_CASE("a fence that failed before it was asked for has failed") {
  fault::FaultOptions options;
  options.rules.push_back({.kind = fault::FaultKind::kill});
  Scene scene(std::move(options));
  const Work work{.context = 7};
  REQUIRE(scene.lane->post({&work, 1}) == 1);
  for (int polls = 0; scene.next().kind != broken; polls++) REQUIRE(polls < 20);
  CHECK(scene.next().kind == notified);  // the inner lane is retired, which is not the user's business yet
  scene.lane->retire();
  checkRefused(scene);
}
