// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace weft::perf {

namespace {

constexpr std::chrono::milliseconds kPause{500};

// A terminal that does not take it now goes without.
void writeTo(int fd, const std::string& text) {
  [[maybe_unused]] const ssize_t ignored = ::write(fd, text.data(), text.size());
}

// As much of it as fits into a line: what goes on in the next one, no wipe reaches.
std::string_view fitting(std::string_view text, int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return text;
  return text.substr(0, size_t{size.ws_col} - 1);
}

}  // namespace

void Progress::begin(std::string label, int iterations) {
  label_ = std::move(label);
  iterations_ = iterations;
  done_ = 0;
  ++step_;
}

void Progress::iteration(Clock::time_point now) {
  ++done_;
  if (!enabled() || now < next_) return;
  next_ = now + kPause;
  show(now);
}

void Progress::show(Clock::time_point now) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - started_).count();
  const std::string text = fmt::format("{} of {}: {}, iteration {} of {}, {}:{:02} so far", step_, steps_,
                                       label_, done_, iterations_, seconds / 60, seconds % 60);
  writeTo(fd_, fmt::format("{}{}", kWipe, fitting(text, fd_)));
  shown_ = true;
}

void Progress::wipe() {
  if (shown_) writeTo(fd_, kWipe);
  shown_ = false;
}

}  // namespace weft::perf
