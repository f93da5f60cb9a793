// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "weft/result.h"

// The threads of a rank that drive its communicators: the one that made the crew is number 0, the others wait
// for work between runs.
namespace weft::perf {

class Crew {
 public:
  using Job = std::function<Status(int thread)>;

  explicit Crew(int threads);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return size_; }

  // Runs the job on every thread at once and waits for all of them. The first error, by thread.
  Status run(const Job& job);
  // On one of them.
  Status runOn(int thread, const std::function<Status()>& job);

  // True where a thread's job has failed: the others of the same run should then give up too. Any thread.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }

 private:
  void work(int thread);
  void perform(int thread);

  int size_;
  std::vector<std::thread> threads_;
  std::vector<Status> results_;  // by thread
  std::mutex mutex_;
  std::condition_variable begin_;
  std::condition_variable end_;
  const Job* job_ = nullptr;
  uint64_t run_ = 0;
  int busy_ = 0;
  bool closing_ = false;
  std::atomic<bool> failed_{false};
};

}  // namespace weft::perf
