// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/state/state.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "src/base/fd.h"
#include "tools/output/output.h"

namespace weft::state {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPause{100};

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

// The files there, by name, that are not older than the question.
std::vector<fs::path> answers(const std::string& folder, fs::file_time_type asked) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".state" && entry.last_write_time(ignored) >= asked)
      found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

std::string textOf(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int run(const Options& options) {
  const std::string ask = options.folder + "/ask";
  if (const int failed = touch(ask); failed != 0)
    return fail(fmt::format("{} cannot be touched: {}", ask, std::generic_category().message(failed)));
  std::error_code failed;
  const auto asked = fs::last_write_time(ask, failed);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  while (std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(kPause);
  const std::vector<fs::path> found = answers(options.folder, asked);
  for (const fs::path& path : found)
    if (const Status shown = show(textOf(path) + "\n"); !shown) return fail(shown.error().message());
  if (!found.empty()) return 0;
  return fail(
      fmt::format("no process answered within {:g} s: does the job run, with WEFT_STATE_DIR={} on this host "
                  "or on a shared folder, and "
                  "with connections?",
                  options.seconds, options.folder));
}

}  // namespace weft::state
