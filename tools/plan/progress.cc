// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/progress.h"

#include <algorithm>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace weft::plan {

namespace {

constexpr const char* kWipe = "\r\x1b[K";

// A terminal or a pipe that does not take it now goes without.
void tell(int fd, const std::string& text) {
  [[maybe_unused]] const ssize_t ignored = ::write(fd, text.data(), text.size());
}

// As much as fits into a line of the terminal: no wipe reaches what goes on in the next one.
std::string cutToLine(std::string text, int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
    text.resize(std::min<size_t>(text.size(), size.ws_col - 1));
  return text;
}

}  // namespace

Progress::Progress(int fd, int parts, const Pace& pace)
    : fd_(fd), terminal_(::isatty(fd) != 0), parts_(parts), pace_(pace), next_(started_ + pace.silence) {}

Progress::~Progress() {
  if (shown_ && terminal_) tell(fd_, kWipe);
}

void Progress::begin(std::string part) {
  label_ = std::move(part);
  ++part_;
}

void Progress::look(Clock::time_point now) {
  if (now < next_) return;
  next_ = now + (terminal_ ? pace_.onTerminal : pace_.elsewhere);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - started_).count();
  const std::string text = fmt::format("{}: {} of {}: {}, {} steps computed, {}:{:02} so far", pace_.command,
                                       part_, parts_, label_, computed_, seconds / 60, seconds % 60);
  tell(fd_, terminal_ ? kWipe + cutToLine(text, fd_) : text + "\n");
  shown_ = true;
}

}  // namespace weft::plan
