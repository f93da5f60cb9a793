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
    if (stays && one.caller) {
      const Verdict verdict = judge(*one.caller);
      stays = verdict == Verdict::wait;
      if (verdict == Verdict::takeIn) takeIn(*one.caller, std::move(one.guest.socket()));
    }
    if (stays)
      i++;
    else
      guests_.erase(guests_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void Doorman::letIn(TimePoint now) {
  for (int i = 0; i < kMostAtOnce; i++) {
    auto fd = acceptOne(listener_.get(), {.keepAlive = true});
    if (!fd) return;  // none waits, or there is no descriptor for it: it stays in the kernel's queue
    if (guests_.size() == kMostGuests) makeRoom();
    const SocketAddress from = remoteAddress(fd->get());
    guests_.push_back({Guest(fd.take(), now + kToGreet, kHelloBytes), from, encodeDoor(freshNonce()), 0, {}});
  }
}

// Guests that have not greeted go first.
void Doorman::makeRoom() {
  const auto silent = [](const AtDoor& one) { return one.caller ? nullptr : &one.from; };
  auto leaves = oldestOfLargestCrowd(guests_.begin(), guests_.end(), silent);
  if (leaves == guests_.end()) leaves = guests_.begin();
  guests_.erase(leaves);
}

// The words of the door fit into a fresh socket's buffer, but a socket may take fewer bytes at a time.
bool Doorman::speak(AtDoor& one) {
  while (one.said < one.words.size()) {
    const IoResult sent = sendSome(one.guest.socket().get(), std::span(one.words).subspan(one.said));
    if (sent.io != Io::ok) return sent.io == Io::again;
    one.said += sent.bytes;
  }
  return true;
}

// Exactly the greeting is read: what follows belongs to the lane.
bool Doorman::hear(AtDoor& one, TimePoint now) {
  if (!speak(one)) return false;
  const Guest::Heard heard = one.guest.hear(now);
  if (one.caller || heard != Guest::Heard::message) return heard != Guest::Heard::gone;
  HelloBytes bytes{};
  std::copy(one.guest.bytes().begin(), one.guest.bytes().end(), bytes.begin());
  Caller caller;
  if (!decode(bytes, &caller.hello) || !decodeDoor(one.words, &caller.door)) return false;
  caller.from = one.from;
  one.caller = caller;
  one.guest.allowUntil(now + kToBeWanted);
  return true;
}

}  // namespace weft::tcp
