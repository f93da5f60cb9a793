// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/doorman.h"

#include <algorithm>

namespace weft::tcp {

Status Doorman::open(const SocketAddress& interface, const PortRange& ports) {
  TRY(listener_, listenOn(interface.withPort(0), "listening for peers", Hears::itsFamily, ports));
  bound_ = localAddress(listener_.get());
  return {};
}

void Doorman::attend(TimePoint now, const Judge& judge, const TakeIn& takeIn) {
  letIn(now);
  for (size_t i = 0; i < guests_.size();) {
    AtDoor& one = guests_[i];
    bool stays = hear(one, now);
    if (stays && one.hello) {
      const Verdict verdict = judge(*one.hello);
      stays = verdict == Verdict::wait;
      if (verdict == Verdict::takeIn) takeIn(*one.hello, std::move(one.guest.socket()));
    }
    if (stays) {
      i++;
    } else {
      std::swap(guests_[i], guests_.back());
      guests_.pop_back();
    }
  }
}

void Doorman::letIn(TimePoint now) {
  for (int i = 0; i < kMostAtOnce; i++) {
    auto fd = acceptOne(listener_.get(), {.keepAlive = true});
    if (!fd) return;  // none waits, or there is no descriptor for it: it stays in the kernel's queue
    if (guests_.size() == kMostGuests) makeRoom();
    guests_.push_back({Guest(fd.take(), now + kToGreet, kHelloBytes), {}});
  }
}

// The guest that has been silent longest goes.
void Doorman::makeRoom() {
  const auto before = [](const AtDoor& a, const AtDoor& b) {
    return a.hello.has_value() != b.hello.has_value() ? !a.hello : a.guest.deadline() < b.guest.deadline();
  };
  guests_.erase(std::min_element(guests_.begin(), guests_.end(), before));
}

// Exactly the greeting is read: what follows belongs to the lane.
bool Doorman::hear(AtDoor& one, TimePoint now) {
  const Guest::Heard heard = one.guest.hear(now);
  if (one.hello || heard != Guest::Heard::message) return heard != Guest::Heard::gone;
  HelloBytes bytes{};
  std::copy(one.guest.bytes().begin(), one.guest.bytes().end(), bytes.begin());
  Hello hello;
  if (!decode(bytes, &hello)) return false;
  one.hello = hello;
  one.guest.allowUntil(now + kToBeWanted);
  return true;
}

}  // namespace weft::tcp
