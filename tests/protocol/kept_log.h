// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "src/base/log.h"

namespace weft::test {

// What is logged at INFO while it lives. One at a time.
class KeptLog {
 public:
  KeptLog() {
    text_.clear();
    setLogSink(keep);
    setLogLevel(LogLevel::info);
  }
  ~KeptLog() {
    setLogSink(nullptr);
    setLogLevel(LogLevel::warn);
  }
  KeptLog(const KeptLog&) = delete;
  KeptLog& operator=(const KeptLog&) = delete;

  const std::string& text() const { return text_; }

 private:
  static void keep(LogLevel, const char*, int, const char* message) { text_ += message + std::string("\n"); }

  inline static std::string text_;
};

}  // namespace weft::test
