// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/state_report.h"

#include <chrono>
#include <memory>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/presence.h"
#include "src/base/printable.h"
#include "src/base/process.h"
#include "src/base/shared_folder.h"

namespace weft::core {

namespace {

// The end of the last connection waits for the thread, at most one slice of its pause.
constexpr std::chrono::milliseconds kSlice{20};
constexpr int kSlicesBetweenLooks = 25;
constexpr uint32_t kLooksBetweenTouches = 10;

constexpr const char* kQuestion = "ask";

std::string fileOfThisProcess(const char* ending) {
  return hostName() + "." + std::to_string(::getpid()) + ending;
}

}  // namespace

StateReport::StateReport(Key, const std::string& folder, Source source)
    : folder_(folder),
      file_(fileOfThisProcess(".state")),
      note_(fileOfThisProcess(kPresenceEnding)),
      source_(std::move(source)),
      askedAt_(SharedFolder(folder_).writtenAt(kQuestion)) {}

Result<std::unique_ptr<StateReport>> StateReport::start(const std::string& folder, Source source) {
  auto report = std::make_unique<StateReport>(Key{}, folder, std::move(source));
  TRY(report->thread_, startThread("weft-state", [raw = report.get()] { raw->run(); }));
  return report;
}

StateReport::~StateReport() {
  stopping_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
  (void)::unlink((folder_ + "/" + note_).c_str());
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
  const int64_t asked = SharedFolder(folder_).writtenAt(kQuestion);
  const uint32_t warnings = source_.warnings();
  const bool wanted = (asked != 0 && asked != askedAt_) || warnings != warnings_;
  askedAt_ = asked;
  warnings_ = warnings;
  if (wanted) write();
}

void StateReport::write() {
  complain(file_, SharedFolder(folder_).replace(file_, printable(source_.text(), Breaks::kept)));
}

void StateReport::keepNote() {
  if (looks_++ % kLooksBetweenTouches != 0) return;
  if (looks_ > 1 && SharedFolder(folder_).touchExisting(note_) == 0) return;
  complain(note_, SharedFolder(folder_).replace(note_, Presence::ofThisProcess().text()));
}

void StateReport::complain(const std::string& file, int error) {
  if (error == 0 || complained_) return;
  complained_ = true;
  WEFT_LOG(
      warn,
      "the state of this process cannot be written to %s/%s: %s; WEFT_STATE_DIR must name a folder that it "
      "may write to",
      folder_.c_str(), file.c_str(), sharedFileWords(error).c_str());
}

}  // namespace weft::core
