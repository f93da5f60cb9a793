// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "tests/softgpu/api.h"
#include "tests/softgpu/completion.h"

namespace softgpu {

class Capture;

// Work of one device in order, done by a thread of its own. While the stream is captured its work goes into
// the graph instead.
class Stream {
 public:
  explicit Stream(int device, unsigned flags);

  // Appends work, or hands it to the capture. Any thread.
  void submit(std::function<void()> work);
  // Appends work even while capturing. Any thread.
  void enqueue(std::function<void()> work);
  // Waits until what was submitted so far is done. kCaptureUnsupported while capturing.
  Result synchronize();
  bool idle();
  // The object ends itself when its work is done; nobody may use it any more.
  void destroy();

  int device() const { return device_; }
  unsigned flags() const { return flags_; }
  uint64_t id() const { return id_; }

  std::shared_ptr<Capture> capture();
  void setCapture(std::shared_ptr<Capture> capture);

 private:
  void run();

  const int device_;
  const unsigned flags_;
  const uint64_t id_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::shared_ptr<Capture> capture_;
  bool busy_ = false;
  bool closing_ = false;
};

// The stream that a handle of the API names: null and the two reserved values mean the default stream of the
// current device.
Stream& streamOf(void* handle);

}  // namespace softgpu
