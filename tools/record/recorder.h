// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nccl/types.h"
#include "src/base/fd.h"
#include "tools/trace/encoder.h"

// The trace of this process: one file, and a buffer for each thread that called the plugin. A thread fills
// its own buffer; the file's lock is taken only to write a full one. The events of a thread are in the file
// 250 ms after its next event at the latest, and all of it after a call that opens or closes something.
namespace weft::record {

// Held for some ten nanoseconds by the buffer's thread, and by whoever writes out all buffers at the end.
class SpinLock {
 public:
  void lock() {
    while (flag_.test_and_set(std::memory_order_acquire)) flag_.wait(true, std::memory_order_relaxed);
  }
  void unlock() {
    flag_.clear(std::memory_order_release);
    flag_.notify_one();
  }

 private:
  std::atomic_flag flag_;
};

struct ThreadLog {
  uint32_t number = 0;
  SpinLock lock;
  trace::Encoder encoder;
  uint64_t written = 0;  // when its buffer went to the file last
  trace::Event event;    // filled and added by its thread only; keeps its memory
};

class Recorder {
 public:
  // Lives until the library is unloaded. Any thread, as all that follows.
  static Recorder& instance();

  // Opens the file. Once; empty when that went well, else what is wrong and what to do.
  std::string open(const std::string& plugin);
  const std::string& path() const { return path_; }
  void setLogger(ncclDebugLogger_t logger) { logger_.store(logger); }
  void warn(const std::string& text) const;
  void inform(const std::string& text) const;

  // Nanoseconds since the trace began.
  uint64_t now() const { return static_cast<uint64_t>((std::chrono::steady_clock::now() - began_).count()); }
  uint64_t newComm() { return ++comms_; }
  uint64_t newMemory() { return ++memories_; }
  uint64_t newRequest() { return requests_.fetch_add(1, std::memory_order_relaxed) + 1; }
  uint64_t newContext() { return ++contexts_; }

  // The calling thread's event, empty, to be filled and added.
  trace::Event& begin(trace::Kind kind, uint64_t time, uint64_t duration, ncclResult_t result);
  void add();
  // Of something that opens or closes: the file is complete afterwards.
  void addAndFlush();
  void flush();

 private:
  ThreadLog& mine();
  ThreadLog& newThread();
  void flushLog(ThreadLog& log);
  void write(const std::string& bytes);
  std::string openFile(const std::string& folder);
  std::string about(const std::string& plugin) const;

  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::atomic<ncclDebugLogger_t> logger_{nullptr};
  std::atomic<uint64_t> comms_{0};
  std::atomic<uint64_t> memories_{0};
  std::atomic<uint64_t> requests_{0};
  std::atomic<uint64_t> contexts_{0};
  std::atomic<bool> stopped_{true};  // nothing is written: no file, or its limit is reached
  std::mutex fileMutex_;             // of what follows
  Fd file_;
  std::string path_;
  pid_t pid_ = 0;
  uint64_t bytes_ = 0;
  uint64_t limit_ = 0;
  std::mutex threadsMutex_;  // of the list
  std::vector<std::unique_ptr<ThreadLog>> threads_;
};

}  // namespace weft::record
