// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/state_report.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/advice.h"
#include "src/base/fd.h"
#include "src/base/log.h"
#include "src/base/presence.h"
#include "src/base/process.h"

namespace weft::core {

namespace {

// The end of the last connection waits for the thread, at most one slice of its pause.
constexpr std::chrono::milliseconds kSlice{20};
constexpr int kSlicesBetweenLooks = 25;
constexpr uint32_t kLooksBetweenTouches = 10;

// In nanoseconds; 0: there is no such file.
int64_t touchedAt(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return 0;
  return int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
}

// A reader sees the whole of it, or the one before. 0, or errno.
int replaceFile(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  const Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) return errno;
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(file.get(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return errno;
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
  return std::rename(fresh.c_str(), path.c_str()) == 0 ? 0 : errno;
}

std::string fileOfThisProcess(const std::string& folder, const char* ending) {
  return folder + "/" + hostName() + "." + std::to_string(::getpid()) + ending;
}

}  // namespace

StateReport::StateReport(Key, const std::string& folder, Source source)
    : ask_(folder + "/ask"),
      file_(fileOfThisProcess(folder, ".state")),
      note_(fileOfThisProcess(folder, kPresenceEnding)),
      source_(std::move(source)),
      askedAt_(touchedAt(ask_)) {}

Result<std::unique_ptr<StateReport>> StateReport::start(const std::string& folder, Source source) {
  auto report = std::make_unique<StateReport>(Key{}, folder, std::move(source));
  TRY(report->thread_, startThread("weft-state", [raw = report.get()] { raw->run(); }));
  return report;
}

StateReport::~StateReport() {
  stopping_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
  (void)::unlink(note_.c_str());
}

void StateReport::run() {
  while (!stopping_.load(std::memory_order_relaxed)) {
    keepNote();
    look();
    rest();
  }
}

void StateReport::rest() const {
  for (int i = 0; i < kSlicesBetweenLooks && !stopping_.load(std::memory_order_relaxed); i++)
    source_.clock->sleep(kSlice);
}

void StateReport::look() {
  const int64_t asked = touchedAt(ask_);
  const uint32_t warnings = source_.warnings();
  const bool wanted = (asked != 0 && asked != askedAt_) || warnings != warnings_;
  askedAt_ = asked;
  warnings_ = warnings;
  if (wanted) write();
}

void StateReport::write() {
  complain(file_, replaceFile(file_, source_.text()));
}

void StateReport::keepNote() {
  if (looks_++ % kLooksBetweenTouches != 0) return;
  if (looks_ > 1 && ::utimensat(AT_FDCWD, note_.c_str(), nullptr, 0) == 0) return;
  complain(note_, replaceFile(note_, Presence::ofThisProcess().text()));
}

void StateReport::complain(const std::string& file, int error) {
  if (error == 0 || complained_) return;
  complained_ = true;
  WEFT_LOG(warn,
           "the state of this process cannot be written to %s: %s; WEFT_STATE_DIR must name a folder that it "
           "may write to",
           file.c_str(), errnoWords(error).c_str());
}

}  // namespace weft::core
