// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/stream.h"

#include <array>
#include <atomic>
#include <thread>
#include <utility>

#include "tests/softgpu/capture.h"
#include "tests/softgpu/device.h"
#include "tests/softgpu/kernels/players.h"
#include "tests/softgpu/ownership.h"

namespace softgpu {

namespace {

std::atomic<uint64_t> lastStream{0};

}  // namespace

Stream::Stream(int device, unsigned flags) : device_(device), flags_(flags), id_(++lastStream) {
  std::thread([this] { run(); }).detach();
}

void Stream::run() {
  setCurrentDevice(device_);
  std::unique_lock guard(lock_);
  while (true) {
    changed_.wait(guard, [this] { return !work_.empty() || closing_; });
    if (work_.empty()) break;
    auto next = std::move(work_.front());
    work_.pop_front();
    busy_ = true;
    guard.unlock();
    next();
    next = nullptr;
    guard.lock();
    busy_ = false;
    changed_.notify_all();
  }
  guard.unlock();
  takeBack(this);
}

void Stream::enqueue(std::function<void()> work) {
  const std::lock_guard guard(lock_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}

void Stream::submit(std::function<void()> work) {
  if (const auto captured = capture()) {
    captured->add(*this, std::move(work));
  } else {
    enqueue(std::move(work));
  }
}

Result Stream::synchronize() {
  if (capture()) return kCaptureUnsupported;
  const auto reached = std::make_shared<Completion>();
  enqueue([reached] { reached->set(); });
  reached->wait();
  return kernelFailure();
}

bool Stream::idle() {
  const std::lock_guard guard(lock_);
  return work_.empty() && !busy_;
}

void Stream::destroy() {
  const std::lock_guard guard(lock_);
  closing_ = true;
  changed_.notify_all();
}

std::shared_ptr<Capture> Stream::capture() {
  const std::lock_guard guard(lock_);
  return capture_;
}

void Stream::setCapture(std::shared_ptr<Capture> capture) {
  const std::lock_guard guard(lock_);
  capture_ = std::move(capture);
}

Stream& streamOf(void* handle) {
  constexpr uintptr_t kLastReserved = 2;
  if (reinterpret_cast<uintptr_t>(handle) > kLastReserved) return *static_cast<Stream*>(handle);
  static auto* const lock = &immortal<std::mutex>();
  static auto* const defaults = &immortal<std::array<Stream*, kMostDevices>>();
  const std::lock_guard guard(*lock);
  Stream*& stream = (*defaults)[static_cast<size_t>(currentDevice())];
  if (stream == nullptr) stream = handOut<Stream>(currentDevice(), 0);
  return *stream;
}

}  // namespace softgpu
