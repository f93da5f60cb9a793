// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/door.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <vector>

// A poll over the listener and its guests.
namespace weft::netdriver {

namespace {

constexpr size_t kMostGuests = 256;
constexpr size_t kMostAtOnce = 64;  // that are let in before those inside are heard
constexpr std::chrono::milliseconds kGuestTime{5000};
constexpr int kAfterFailureMs = 20;  // after an accept that failed, as for want of descriptors

void makeBlocking(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

}  // namespace

Door::Door(Fd listener, const TokenKey& key) : listener_(std::move(listener)), key_(key) {
  ::fcntl(listener_.get(), F_SETFL, ::fcntl(listener_.get(), F_GETFL) | O_NONBLOCK);
}

void Door::letIn() {
  for (size_t i = 0; i < kMostAtOnce; i++) {
    auto socket = acceptOne(listener_.get());
    if (!socket) {
      if (socket.error().errnum() != EAGAIN) ::poll(nullptr, 0, kAfterFailureMs);
      return;
    }
    if (guests_.size() == kMostGuests) guests_.pop_front();
    Opening opening;
    opening.nonce = freshNonce();
    Inside one{Guest(std::move(*socket), weft::Clock::system().now() + kGuestTime, sizeof(Introduction)),
               opening};
    if (one.guest.say(std::as_bytes(std::span(&opening, 1)))) guests_.push_back(std::move(one));
  }
}

void Door::sendAway(Inside* one) {
  strangers_++;
  lastStranger_ = remoteAddress(one->guest.socket().get()).ipText();
  const Answer no = answer(key_, {}, Verdict::stranger, {});
  (void)one->guest.say(std::as_bytes(std::span(&no, 1)));
}

// True where the guest has no business here any more: it has gone, is a stranger, or is the caller.
bool Door::isOver(Inside* one, std::optional<Caller>* caller) {
  switch (one->guest.hear(weft::Clock::system().now())) {
    case Guest::Heard::nothing:
      return false;
    case Guest::Heard::gone:
      return true;
    case Guest::Heard::message:
      break;
  }
  Introduction introduction;
  std::memcpy(&introduction, one->guest.bytes().data(), sizeof(introduction));
  if (!isProven(key_, introduction, one->opening)) {
    sendAway(one);
  } else {
    makeBlocking(one->guest.socket().get());
    *caller = Caller{std::move(one->guest.socket()), introduction.hello};
  }
  return true;
}

std::optional<Door::Caller> Door::next(Milliseconds time) {
  std::vector<pollfd> waits{{listener_.get(), POLLIN, 0}};
  for (const Inside& one : guests_) waits.push_back({one.guest.socket().get(), POLLIN, 0});
  (void)::poll(waits.data(), waits.size(), static_cast<int>(time.count()));
  std::optional<Caller> caller;
  for (auto one = guests_.begin(); one != guests_.end() && !caller;)
    one = isOver(&*one, &caller) ? guests_.erase(one) : one + 1;
  if (!caller && waits.front().revents != 0) letIn();
  return caller;
}

}  // namespace weft::netdriver
