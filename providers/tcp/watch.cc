// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/watch.h"

#include <algorithm>
#include <array>
#include <sys/epoll.h>

namespace weft::tcp {

void Watch::add(Stream* stream) {
  if (stream->hot) return;
  if (!stream->watched) all_++;
  stream->watched = stream->hot = true;
  stream->emptyReads = 0;
  hot_.push_back(stream);
}

void Watch::remove(Stream* stream) {
  if (!stream->watched) return;
  all_--;
  if (!stream->hot && epoll_) (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream->fd(), nullptr);
  std::erase(hot_, stream);
  stream->watched = stream->hot = false;
}

// With nothing to do here the set is asked as often as it is cheap, else at each sixteenth poll.
void Watch::wake(bool busy) {
  const bool turn = ++polls_ % kPolls == 0;
  if (busy && !turn) return;
  const TimePoint now = Clock::system().now();
  if (!turn && !hot_.empty() && now - looked_ < kApart) return;
  looked_ = now;
  lookAtTheCold();
  cool();
}

void Watch::cool() {
  std::erase_if(hot_, [this](Stream* stream) {
    return stream->emptyReads >= kQuiet && !stream->restless() && handOver(stream);
  });
}

// One event and it is ours again, so the set is armed anew each time.
bool Watch::handOver(Stream* stream) {
  if (!epoll_) {
    epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
    epoll_.closeInForkedChildren();
  }
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;
  event.data.ptr = stream;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, stream->fd(), &event) != 0 &&
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream->fd(), &event) != 0)
    return false;  // it stays with those that are read
  stream->hot = false;
  return true;
}

void Watch::lookAtTheCold() {
  if (all_ == hot_.size()) return;
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; i++) {
    auto* stream = static_cast<Stream*>(events[static_cast<size_t>(i)].data.ptr);
    if (stream->hot) continue;
    stream->hot = true;
    stream->emptyReads = 0;
    hot_.push_back(stream);
  }
}

}  // namespace weft::tcp
