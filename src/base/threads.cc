// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/threads.h"

#include "src/base/process.h"

// The system's threads.
namespace weft {

namespace {

class SystemThread final : public RunningThread {
 public:
  explicit SystemThread(std::thread thread) : thread_(std::move(thread)) {}
  void join() override { thread_.join(); }

 private:
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<RunningThread>> Threads::start(const char* name, std::function<void()> body) const {
  TRY(std::thread thread, startThread(name, std::move(body)));
  return std::unique_ptr<RunningThread>(std::make_unique<SystemThread>(std::move(thread)));
}

const Threads& Threads::system() {
  static const Threads threads;
  return threads;
}

}  // namespace weft
