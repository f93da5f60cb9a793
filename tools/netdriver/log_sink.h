// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "nccl/types.h"

// Stands in for NCCL's logger. NCCL's callback carries no context, so there is one sink a process: it prints
// warnings to stderr (and INFO when verbose) and remembers warnings, so a program can say what a plugin
// complained about, or fail when it complained unasked. Any thread.
namespace weft::netdriver {

class LogSink {
 public:
  static LogSink& instance();

  // The logger that init hands to the plugin.
  static void callback(ncclDebugLogLevel level, unsigned long flags, const char* file, int line,
                       const char* format, ...) __attribute__((format(printf, 5, 6)));

  void setVerbose(bool on) { verbose_.store(on); }
  // Warnings are remembered either way.
  void setQuiet(bool on) { quiet_.store(on); }

  size_t warnings() const;
  // The remembered warnings (the latest 200), oldest first; a later call starts empty.
  std::vector<std::string> takeWarnings();
  // The fabric that weft said it took since the last call: "ofi:net (libfabric 1.17)". Empty for other
  // plugins.
  std::string takeFabric();

 private:
  void write(ncclDebugLogLevel level, const char* text);

  std::atomic<bool> verbose_{false};
  std::atomic<bool> quiet_{false};
  mutable std::mutex mutex_;
  std::vector<std::string> warnings_;
  std::string fabric_;
};

}  // namespace weft::netdriver
