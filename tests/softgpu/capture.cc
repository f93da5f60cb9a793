// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/capture.h"

#include <atomic>
#include <thread>
#include <utility>

#include "tests/softgpu/device.h"
#include "tests/softgpu/ownership.h"

namespace softgpu {

namespace {

std::atomic<uint64_t> lastCapture{0};
thread_local CaptureMode modeOfThread = CaptureMode::global;

// The captures that have begun and not ended.
struct UnderWay {
  std::mutex lock;
  std::vector<std::weak_ptr<Capture>> captures;
};

UnderWay& underWay() {
  static auto* const kUnderWay = &immortal<UnderWay>();
  return *kUnderWay;
}

// What one launch waits for and tells.
struct Run {
  std::shared_ptr<GraphBody> body;
  std::vector<std::shared_ptr<Completion>> marks;
  std::vector<std::shared_ptr<Completion>> awaited;
  std::vector<std::shared_ptr<Completion>> recorded;
};

void runStep(const GraphStep& step, Run& run) {
  const auto number = static_cast<size_t>(step.mark);
  switch (step.kind) {
    case GraphStep::Kind::work:
      step.work();
      break;
    case GraphStep::Kind::setMark:
      run.marks[number]->set();
      break;
    case GraphStep::Kind::waitMark:
      run.marks[number]->wait();
      break;
    case GraphStep::Kind::waitEvent:
      if (run.awaited[number]) run.awaited[number]->wait();
      break;
  }
}

void runLane(const std::vector<GraphStep>& lane, Run& run) {
  for (const auto& step : lane) runStep(step, run);
}

void runAll(Run& run, int device) {
  std::vector<std::thread> others;
  const auto& lanes = run.body->lanes;
  for (size_t lane = 1; lane < lanes.size(); ++lane) {
    others.emplace_back([&run, &lanes, lane, device] {
      setCurrentDevice(device);
      runLane(lanes[lane], run);
    });
  }
  if (!lanes.empty()) runLane(lanes[0], run);
  for (auto& other : others) other.join();
  for (const auto& done : run.recorded) done->set();
}

}  // namespace

void UserObject::retain(unsigned count) {
  const std::lock_guard guard(lock_);
  count_ += count;
}

void UserObject::release(unsigned count) {
  {
    const std::lock_guard guard(lock_);
    count_ -= count < count_ ? count : count_;
    if (count_ > 0) return;
  }
  destroy_(object_);
  takeBack(this);
}

GraphBody::~GraphBody() {
  for (auto* object : objects) object->release(1);
}

CaptureMode exchangeCaptureMode(CaptureMode mode) {
  return std::exchange(modeOfThread, mode);
}

bool mayDisturbCaptures() {
  if (modeOfThread == CaptureMode::relaxed) return true;
  const std::lock_guard guard(underWay().lock);
  bool may = true;
  for (const auto& weak : underWay().captures) {
    const auto capture = weak.lock();
    if (!capture || !capture->forbids(std::this_thread::get_id(), modeOfThread)) continue;
    capture->fail();
    may = false;
  }
  return may;
}

std::shared_ptr<Capture> Capture::begin(Stream& origin, CaptureMode mode) {
  auto capture = std::make_shared<Capture>(origin, mode);
  const std::lock_guard guard(underWay().lock);
  std::erase_if(underWay().captures, [](const auto& weak) { return weak.expired(); });
  underWay().captures.push_back(capture);
  return capture;
}

Capture::Capture(Stream& origin, CaptureMode mode) : origin_(origin), mode_(mode), id_(++lastCapture) {}

// A thread's own capture forbids unless it is relaxed; those of other threads where both modes are global.
bool Capture::forbids(std::thread::id caller, CaptureMode callers) const {
  if (caller == beganIn_) return mode_ != CaptureMode::relaxed;
  return mode_ == CaptureMode::global && callers == CaptureMode::global;
}

std::vector<GraphStep>& Capture::laneOf(Stream& stream) {
  const auto [found, fresh] = lanes_.emplace(stream.id(), body_->lanes.size());
  if (fresh) {
    body_->lanes.emplace_back();
    streams_[stream.id()] = &stream;
  }
  return body_->lanes[found->second];
}

void Capture::add(Stream& stream, std::function<void()> work) {
  const std::lock_guard guard(body_->lock);
  laneOf(stream).push_back({GraphStep::Kind::work, std::move(work), -1});
}

void Capture::record(Stream& stream, Event& event) {
  const GraphNode* const node = tip(stream);
  const std::lock_guard guard(event.lock);
  event.capture = weak_from_this();
  event.mark = node->mark;
  event.last = nullptr;
}

GraphNode* Capture::tip(Stream& stream) {
  const std::lock_guard guard(body_->lock);
  const int mark = body_->marks++;
  laneOf(stream).push_back({GraphStep::Kind::setMark, {}, mark});
  body_->nodes.push_back({mark});
  return &body_->nodes.back();
}

void Capture::waitMark(Stream& stream, int mark) {
  const std::lock_guard guard(body_->lock);
  laneOf(stream).push_back({GraphStep::Kind::waitMark, {}, mark});
}

void Capture::waitExternal(Stream& stream, Event& event) {
  const std::lock_guard guard(body_->lock);
  laneOf(stream).push_back({GraphStep::Kind::waitEvent, {}, static_cast<int>(body_->awaited.size())});
  body_->awaited.push_back(&event);
  event.inGraph = true;
}

void Capture::forget(Stream& stream) {
  const std::lock_guard guard(body_->lock);
  streams_.erase(stream.id());
}

Graph* Capture::end() {
  const auto self = shared_from_this();  // the origin may hold the last one else
  std::map<uint64_t, Stream*> streams;
  {
    const std::lock_guard guard(body_->lock);
    streams = streams_;
  }
  for (const auto& [id, stream] : streams) {
    if (stream != &origin_) stream->setCapture(nullptr);
  }
  origin_.setCapture(nullptr);
  {
    const std::lock_guard guard(underWay().lock);
    std::erase_if(underWay().captures, [&](const auto& weak) { return weak.lock() == self; });
  }
  if (failed_) return nullptr;
  return handOut<Graph>(Graph{body_});
}

void launchGraph(const std::shared_ptr<GraphBody>& body, Stream& stream) {
  const auto run = std::make_shared<Run>();
  run->body = body;
  {
    const std::lock_guard guard(body->lock);
    for (int mark = 0; mark < body->marks; ++mark) run->marks.push_back(std::make_shared<Completion>());
    // Awaited events count as they are before this launch; only then does it record its own.
    for (auto* event : body->awaited) {
      const std::lock_guard eventGuard(event->lock);
      run->awaited.push_back(event->last);
    }
    for (auto* event : body->recorded) {
      run->recorded.push_back(std::make_shared<Completion>());
      const std::lock_guard eventGuard(event->lock);
      event->last = run->recorded.back();
      event->capture.reset();
    }
  }
  const int device = stream.device();
  stream.enqueue([run, device] { runAll(*run, device); });
}

}  // namespace softgpu
