// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/state/state.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <sys/statvfs.h>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "src/base/presence.h"
#include "src/base/printable.h"
#include "src/base/shared_folder.h"
#include "tools/json/json.h"
#include "tools/output/output.h"

namespace weft::state {

namespace {

constexpr std::chrono::milliseconds kPause{100};
constexpr size_t kMostNamed = 32;
constexpr size_t kMostText = size_t{16} << 20;  // bytes of a file
constexpr const char* kQuestion = "ask";
constexpr const char* kAnswer = ".state";

int fail(const std::string& why) {
  fmt::print(stderr, "weft state: {}\n", printable(why, Breaks::kept));
  return 1;
}

std::string stemOf(const std::string& name) {
  return name.substr(0, name.rfind('.'));
}

// Names of regular files, and words for each that is there and is none or cannot be read.
struct Listed {
  std::vector<std::string> names;
  std::vector<std::string> unread;
};

Listed list(const SharedFolder& folder, const char* ending) {
  Listed found;
  for (std::string& name : folder.names(ending)) {
    const SharedFolder::File file = folder.read(name);
    if (file.fd)
      found.names.push_back(std::move(name));
    else if (file.error != ENOENT)
      found.unread.push_back(name + ": " + sharedFileWords(file.error));
  }
  return found;
}

std::string textOf(const SharedFolder& folder, const std::string& name) {
  return printable(folder.text(name, kMostText).value_or(""), Breaks::kept);
}

// A process that left a note and gave no answer.
struct Silent {
  std::string name;  // HOST.PID, as its files are called
  Presence process;
  std::chrono::seconds unseen{0};  // how long before the question it touched its note last
};

std::vector<Silent> silent(const SharedFolder& folder, int64_t asked,
                           const std::vector<std::string>& answered) {
  std::vector<Silent> found;
  for (const std::string& note : list(folder, kPresenceEnding).names) {
    const std::string name = stemOf(note);
    if (std::find(answered.begin(), answered.end(), name + kAnswer) != answered.end()) continue;
    const int64_t seen = folder.writtenAt(note);
    const auto process = Presence::parse(textOf(folder, note));
    if (process && seen != 0)
      found.push_back(
          {name, *process,
           std::chrono::duration_cast<std::chrono::seconds>(std::chrono::nanoseconds(asked - seen))});
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
  std::vector<std::string> answered;
  std::vector<std::string> left;  // older than the question: of processes that are gone, or do not answer
  std::vector<std::string> unread;
  std::vector<Silent> missing;
  std::string why;  // nobody answered, where that is so; empty: it is not
};

// Processes that could not write their answer leave the beginning of it behind.
bool isFull(const std::string& path, const SharedFolder& folder) {
  struct statvfs facts {};
  constexpr uint64_t kOneAnswer = 16384;
  const bool known = ::statvfs(path.c_str(), &facts) == 0;
  return (known && uint64_t{facts.f_bavail} * facts.f_frsize < kOneAnswer) || !folder.names(".new").empty();
}

std::string whyNobody(const Options& options, const SharedFolder& folder,
                      const std::vector<Silent>& missing) {
  const std::string start = fmt::format("no process answered within {:g} s: ", options.seconds);
  if (!missing.empty()) return start + silenceText(options.folder, 0, missing);
  if (isFull(options.folder, folder))
    return start + fmt::format("nothing can be written to {}: its file system is full (df -h {})",
                               options.folder, options.folder);
  return start + fmt::format(
                     "does the job run, with WEFT_STATE_DIR={} on this host or on a shared folder, and with "
                     "connections?",
                     options.folder);
}

std::vector<std::string> answersSince(const SharedFolder& folder, int64_t asked) {
  std::vector<std::string> names = folder.names(kAnswer);
  std::erase_if(names, [&](const std::string& name) { return folder.writtenAt(name) < asked; });
  return names;
}

// Every process that has a note here has answered, or will not as it is gone.
bool allAnswered(const SharedFolder& folder, int64_t asked) {
  const std::vector<std::string> answered = answersSince(folder, asked);
  if (answered.empty()) return false;
  const std::vector<Silent> missing = silent(folder, asked, answered);
  return std::all_of(missing.begin(), missing.end(),
                     [](const Silent& one) { return stateOf(one.process) == ProcessState::gone; });
}

// A folder that cannot be written to, as one of a job that has ended, is still read.
Found ask(const Options& options, const SharedFolder& folder) {
  Found found;
  if (const int failed = folder.touch(kQuestion); failed != 0) {
    Listed all = list(folder, kAnswer);
    found.left = std::move(all.names);
    found.unread = std::move(all.unread);
    found.why =
        fmt::format("{}/{} cannot be touched: {}", options.folder, kQuestion, sharedFileWords(failed));
    return found;
  }
  const int64_t asked = folder.writtenAt(kQuestion);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  while (std::chrono::steady_clock::now() < deadline && !allAnswered(folder, asked))
    std::this_thread::sleep_for(kPause);
  Listed all = list(folder, kAnswer);
  for (std::string& name : all.names)
    (folder.writtenAt(name) >= asked ? found.answered : found.left).push_back(std::move(name));
  found.unread = std::move(all.unread);
  found.missing = silent(folder, asked, found.answered);
  if (found.answered.empty()) found.why = whyNobody(options, folder, found.missing);
  return found;
}

// "2026-11-27 03:14:07 UTC"
std::string timeOf(const SharedFolder& folder, const std::string& name) {
  const int64_t written = folder.writtenAt(name);
  if (written == 0) return "an unknown time";
  const std::time_t seconds = written / 1'000'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  (void)std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

Json filesJson(const SharedFolder& folder, const std::vector<std::string>& names) {
  Json files = Json::array();
  for (const std::string& name : names)
    files.append(
        {{"file", printable(name)}, {"written", timeOf(folder, name)}, {"text", textOf(folder, name)}});
  return files;
}

Json json(const Options& options, const SharedFolder& folder, const Found& found) {
  Json missing = Json::array();
  for (const Silent& one : found.missing)
    missing.append({{"name", printable(one.name)},
                    {"pid", one.process.pid},
                    {"place", one.process.place},
                    {"state", words(stateOf(one.process))},
                    {"unseenSeconds", std::max<int64_t>(one.unseen.count(), 0)}});
  return {{"folder", options.folder},
          {"answered", filesJson(folder, found.answered)},
          {"silent", std::move(missing)},
          {"left", filesJson(folder, found.left)},
          {"failure", found.why}};
}

// Earlier answers are shown where nothing newer is.
std::string text(const Options& options, const SharedFolder& folder, const Found& found) {
  std::string all;
  for (const std::string& name : found.answered) all += textOf(folder, name) + "\n";
  if (!found.answered.empty()) return all + silenceText(options.folder, found.answered.size(), found.missing);
  for (const std::string& name : found.left)
    all += fmt::format("left by {}, which wrote it at {}:\n{}\n", printable(stemOf(name)),
                       timeOf(folder, name), textOf(folder, name));
  return all;
}

}  // namespace

int run(const Options& options) {
  const SharedFolder folder(options.folder);
  const Found found = ask(options, folder);
  const std::string shown =
      options.json ? json(options, folder, found).text() + "\n" : text(options, folder, found);
  if (const Status done = show(shown); !done) return fail(done.error().message());
  for (const std::string& one : found.unread) fail(one);
  return found.why.empty() ? 0 : fail(found.why);
}

}  // namespace weft::state
