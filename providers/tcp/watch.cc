// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/watch.h"

#include <algorithm>
#include <array>
#include <sys/epoll.h>

namespace weft::tcp {

void Watch::add(Stream* stream) {
  if (stream->place != Stream::Place::nowhere) return;
  stream->place = Stream::Place::hot;
  stream->emptyReads = 0;
  hot_.push_back(stream);
}

void Watch::remove(Stream* stream) {
  if (stream->place == Stream::Place::cold) {
    cold_--;
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream->fd(), nullptr);
  }
  std::erase(hot_, stream);
  std::erase(warm_, stream);
  stream->place = Stream::Place::nowhere;
}

bool Watch::isLate() {
  const TimePoint now = clock_.now();
  const bool late = now - polled_ > kSeldom;
  polled_ = now;
  return late;
}

void Watch::cool(size_t index) {
  Stream* stream = hot_[index];
  hot_.erase(hot_.begin() + static_cast<ptrdiff_t>(index));
  warm_.push_back(stream);
  stream->place = Stream::Place::warm;
}

void Watch::warmUp(size_t index) {
  Stream* stream = warm_[index];
  warm_.erase(warm_.begin() + static_cast<ptrdiff_t>(index));
  hot_.push_back(stream);
  stream->place = Stream::Place::hot;
  stream->emptyReads = 0;
}

// An event makes the stream ours again, so the set is armed anew each time. A stream that has to send or to
// acknowledge stays, and so do all where there is no such set.
void Watch::freeze(size_t index) {
  Stream* stream = warm_[index];
  if (stream->hasPending()) return;
  if (!epoll_) {
    epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
    epoll_.closeInForkedChildren();
  }
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;
  event.data.ptr = stream;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, stream->fd(), &event) != 0 &&
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream->fd(), &event) != 0) {
    stream->emptyReads = 0;
    return;
  }
  warm_.erase(warm_.begin() + static_cast<ptrdiff_t>(index));
  stream->place = Stream::Place::cold;
  cold_++;
}

void Watch::lookAtTheCold(bool busy) {
  if (cold_ == 0 || (busy && ++busyPolls_ % kPolls != 0)) return;
  const TimePoint now = clock_.now();
  if (!busy && now - looked_ < kApart) return;
  looked_ = now;
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; i++) {
    auto* stream = static_cast<Stream*>(events[static_cast<size_t>(i)].data.ptr);
    if (stream->place != Stream::Place::cold) continue;
    cold_--;
    stream->place = Stream::Place::hot;
    stream->emptyReads = 0;
    hot_.push_back(stream);
  }
}

}  // namespace weft::tcp
