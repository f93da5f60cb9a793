// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/system/driver/run.h"

#include <cstdio>
#include <thread>

namespace weft::system {

bool Run::expect(bool condition, const std::string& text, Where where) {
  if (!condition) fail(text, where);
  return condition;
}

void Run::require(bool condition, const std::string& text, Where where) {
  if (condition) return;
  fail(text, where);
  throw CaseFailed{};
}

void Run::skip(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    skipped_ = reason;
  }
  throw CaseSkipped{};
}

void Run::success(ncclResult_t result, Call call, Where where) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  require(false, std::string(netdriver::callName(call)) + " returned " + netdriver::resultName(result),
          where);
}

void Run::fail(const std::string& text, const Where& where) {
  const std::string path = where.file;
  std::lock_guard lock(mutex_);
  ++failures_;
  std::printf("FAILED %s (side %d) at %s:%d: %s\n", name_.c_str(), settings_.rank,
              path.substr(path.rfind('/') + 1).c_str(), where.line, text.c_str());
  std::fflush(stdout);  // in step with what other processes print
}

void Run::count(const std::string& what, uint64_t howMany) {
  std::lock_guard lock(mutex_);
  counts_[what] += howMany;
}

uint64_t Run::failures() const {
  std::lock_guard lock(mutex_);
  return failures_;
}

std::string Run::skipped() const {
  std::lock_guard lock(mutex_);
  return skipped_;
}

std::string Run::summary() const {
  std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [what, howMany] : counts_)
    text += (text.empty() ? "" : ", ") + std::to_string(howMany) + " " + what;
  return text;
}

Deadline::Deadline(Run& run, std::string what, Where where)
    : Deadline(run, std::move(what), run.settings().timeout, where) {}

Deadline::Deadline(Run& run, std::string what, Milliseconds limit, Where where)
    : run_(run),
      what_(std::move(what)),
      where_(where),
      limit_(limit),
      end_(std::chrono::steady_clock::now() + limit) {}

void Deadline::check() {
  if (std::chrono::steady_clock::now() > end_)
    run_.require(false, what_ + ": not after " + std::to_string(limit_.count()) + " ms", where_);
  std::this_thread::yield();
}

}  // namespace weft::system
