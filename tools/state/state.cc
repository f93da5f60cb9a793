// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/state/state.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "src/base/advice.h"
#include "src/base/fd.h"
#include "src/base/presence.h"
#include "tools/json/json.h"
#include "tools/output/output.h"

namespace weft::state {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPause{100};
constexpr size_t kMostNamed = 32;

int fail(const std::string& why) {
  fmt::print(stderr, "weft state: {}\n", why);
  return 1;
}

// As `touch` does. 0, or errno.
int touch(const std::string& path) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!file) return errno;
  return ::futimens(file.get(), nullptr) == 0 ? 0 : errno;
}

// The files with that ending there, by name.
std::vector<fs::path> filesOf(const std::string& folder, const char* ending) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ending) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

// Those that are not older than the question.
std::vector<fs::path> answers(const std::string& folder, fs::file_time_type asked) {
  std::vector<fs::path> found = filesOf(folder, ".state");
  std::error_code ignored;
  std::erase_if(found, [&](const fs::path& path) { return fs::last_write_time(path, ignored) < asked; });
  return found;
}

std::string textOf(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A process that left a note and gave no answer.
struct Silent {
  std::string name;  // HOST.PID, as its files are called
  Presence process;
  std::chrono::seconds unseen{0};  // how long before the question it touched its note last
};

std::vector<Silent> silent(const std::string& folder, fs::file_time_type asked,
                           const std::vector<fs::path>& answered) {
  std::vector<Silent> found;
  for (const fs::path& note : filesOf(folder, kPresenceEnding)) {
    const std::string name = note.stem().string();
    if (std::any_of(answered.begin(), answered.end(),
                    [&](const fs::path& one) { return one.stem() == name; }))
      continue;
    const auto process = Presence::parse(textOf(note));
    std::error_code ignored;
    const auto unseen = asked - fs::last_write_time(note, ignored);
    if (process && !ignored)
      found.push_back({name, *process, std::chrono::duration_cast<std::chrono::seconds>(unseen)});
  }
  return found;
}

const char* words(ProcessState state) {
  switch (state) {
    case ProcessState::gone:
      return "is not running any more";
    case ProcessState::runs:
      return "runs and does not answer";
    case ProcessState::waitsInKernel:
      return "waits inside the kernel, for a disk, a file system or a driver";
    case ProcessState::stopped:
      return "is stopped (kill -CONT lets it go on)";
    case ProcessState::traced:
      return "is stopped by a debugger";
    case ProcessState::unknown:
      break;
  }
  return "is on another host or in another container; look at it there";
}

// "pid 6014 (rank 3 on node7) has not, and is stopped (...); it was last seen 15 s before the question".
std::string textOf(const Silent& one) {
  return fmt::format("pid {} ({}) has not, and {}; it was last seen {} s before the question\n",
                     one.process.pid, one.process.place, words(stateOf(one.process)),
                     std::max<int64_t>(one.unseen.count(), 0));
}

// Empty where all have answered.
std::string silenceText(const std::string& folder, size_t answered, const std::vector<Silent>& missing) {
  if (missing.empty()) return {};
  std::string text = fmt::format("{} of {} processes answered\n", answered, answered + missing.size());
  for (size_t i = 0; i < std::min(missing.size(), kMostNamed); ++i) text += "  " + textOf(missing[i]);
  if (missing.size() > kMostNamed) text += fmt::format("  and {} more\n", missing.size() - kMostNamed);
  const bool gone = std::any_of(missing.begin(), missing.end(),
                                [](const Silent& one) { return stateOf(one.process) == ProcessState::gone; });
  if (gone)
    text += fmt::format(
        "weft autopsy {} says what is known of those that are gone; their files may be removed then.\n",
        folder);
  return text;
}

}  // namespace

namespace {

// All that was found when the search for answers ended.
struct Found {
  std::vector<fs::path> answered;
  std::vector<fs::path> left;  // older than the question: of processes that are gone, or that do not answer
  std::vector<Silent> missing;
  std::string why;  // nobody answered, where that is so; empty: it is not
};

// Processes that could not write their answer leave the beginning of it behind.
bool isFull(const std::string& folder) {
  struct statvfs facts {};
  constexpr uint64_t kOneAnswer = 16384;
  const bool known = ::statvfs(folder.c_str(), &facts) == 0;
  return (known && uint64_t{facts.f_bavail} * facts.f_frsize < kOneAnswer) ||
         !filesOf(folder, ".new").empty();
}

std::string whyNobody(const Options& options, const std::vector<Silent>& missing) {
  const std::string start = fmt::format("no process answered within {:g} s: ", options.seconds);
  if (!missing.empty()) return start + silenceText(options.folder, 0, missing);
  if (isFull(options.folder))
    return start + fmt::format("nothing can be written to {}: its file system is full (df -h {})",
                               options.folder, options.folder);
  return start + fmt::format(
                     "does the job run, with WEFT_STATE_DIR={} on this host or on a shared folder, and with "
                     "connections?",
                     options.folder);
}

// A folder that cannot be written to, as one of a job that has ended, is still read.
Found ask(const Options& options) {
  Found found;
  const std::string question = options.folder + "/ask";
  if (const int failed = touch(question); failed != 0) {
    found.left = filesOf(options.folder, ".state");
    found.why = fmt::format("{} cannot be touched: {}", question, errnoWords(failed));
    return found;
  }
  std::error_code ignored;
  const auto asked = fs::last_write_time(question, ignored);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  while (std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(kPause);
  found.answered = answers(options.folder, asked);
  for (const fs::path& path : filesOf(options.folder, ".state"))
    if (std::find(found.answered.begin(), found.answered.end(), path) == found.answered.end())
      found.left.push_back(path);
  found.missing = silent(options.folder, asked, found.answered);
  if (found.answered.empty()) found.why = whyNobody(options, found.missing);
  return found;
}

// "2026-11-27 03:14:07 UTC"
std::string timeOf(const fs::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return "an unknown time";
  std::tm parts{};
  ::gmtime_r(&facts.st_mtim.tv_sec, &parts);
  std::array<char, 32> text{};
  (void)std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

Json fileJson(const fs::path& path) {
  return {{"file", path.filename().string()}, {"written", timeOf(path)}, {"text", textOf(path)}};
}

Json json(const Options& options, const Found& found) {
  Json answered = Json::array();
  for (const fs::path& path : found.answered) answered.append(fileJson(path));
  Json left = Json::array();
  for (const fs::path& path : found.left) left.append(fileJson(path));
  Json missing = Json::array();
  for (const Silent& one : found.missing)
    missing.append({{"name", one.name},
                    {"pid", one.process.pid},
                    {"place", one.process.place},
                    {"state", words(stateOf(one.process))},
                    {"unseenSeconds", std::max<int64_t>(one.unseen.count(), 0)}});
  return {{"folder", options.folder},
          {"answered", std::move(answered)},
          {"silent", std::move(missing)},
          {"left", std::move(left)},
          {"failure", found.why}};
}

// Earlier answers are shown where nothing newer is.
std::string text(const Options& options, const Found& found) {
  std::string all;
  for (const fs::path& path : found.answered) all += textOf(path) + "\n";
  if (!found.answered.empty()) return all + silenceText(options.folder, found.answered.size(), found.missing);
  for (const fs::path& path : found.left)
    all += fmt::format("left by {}, which wrote it at {}:\n{}\n", path.stem().string(), timeOf(path),
                       textOf(path));
  return all;
}

}  // namespace

int run(const Options& options) {
  const Found found = ask(options);
  const std::string shown = options.json ? json(options, found).text() + "\n" : text(options, found);
  if (const Status done = show(shown); !done) return fail(done.error().message());
  return found.why.empty() ? 0 : fail(found.why);
}

}  // namespace weft::state
