// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/crew.h"

namespace weft::perf {

Crew::Crew(int threads) : size_(threads), results_(static_cast<size_t>(threads)) {
  for (int t = 1; t < threads; ++t) threads_.emplace_back([this, t] { work(t); });
}

Crew::~Crew() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status Crew::run(const Job& job) {
  failed_ = false;
  {
    const std::lock_guard lock(mutex_);
    job_ = &job;
    busy_ = size_ - 1;
    ++run_;
  }
  begin_.notify_all();
  perform(0);
  std::unique_lock lock(mutex_);
  end_.wait(lock, [this] { return busy_ == 0; });  // each job has deadlines of its own
  for (Status& result : results_)
    if (!result) return result.takeError();
  return {};
}

Status Crew::runOn(int thread, const std::function<Status()>& job) {
  return run([&](int t) { return t == thread ? job() : Status(); });
}

void Crew::perform(int thread) {
  Status& result = results_[static_cast<size_t>(thread)];
  result = (*job_)(thread);
  if (!result) failed_ = true;
}

void Crew::work(int thread) {
  for (uint64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      begin_.wait(lock, [&] { return closing_ || run_ != seen; });
      if (closing_) return;
      seen = run_;
    }
    perform(thread);
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) end_.notify_one();
  }
}

}  // namespace weft::perf
