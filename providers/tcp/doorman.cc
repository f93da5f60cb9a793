// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/doorman.h"

#include <algorithm>
#include <cerrno>

namespace weft::tcp {

Status Doorman::open(const SocketAddress& interface) {
  TRY(listener_, listenAt(interface, &bound_));
  return {};
}

void Doorman::attend(TimePoint now, const Judge& judge, const TakeIn& takeIn) {
  letIn(now);
  for (size_t i = 0; i < guests_.size();) {
    Guest& guest = guests_[i];
    bool stays = hear(guest, now);
    if (stays && guest.greeted) {
      const Verdict verdict = judge(guest.hello);
      stays = verdict == Verdict::wait;
      if (verdict == Verdict::takeIn) takeIn(guest.hello, std::move(guest.fd));
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
    Fd fd = acceptFrom(listener_.get());
    if (!fd) return;  // nobody waits, or there is no descriptor for him: he stays in the kernel's queue
    if (guests_.size() == kMostGuests) makeRoom();
    Guest guest;
    guest.fd = std::move(fd);
    guest.deadline = now + kToGreet;
    guests_.push_back(std::move(guest));
  }
}

// The one who has been silent longest goes.
void Doorman::makeRoom() {
  const auto before = [](const Guest& a, const Guest& b) {
    return a.greeted != b.greeted ? !a.greeted : a.deadline < b.deadline;
  };
  guests_.erase(std::min_element(guests_.begin(), guests_.end(), before));
}

// Exactly the greeting is read: what follows belongs to the lane.
bool Doorman::hear(Guest& guest, TimePoint now) {
  if (now >= guest.deadline) return false;
  while (guest.have < kHelloBytes) {
    const ssize_t got =
        ::recv(guest.fd.get(), guest.bytes.data() + guest.have, kHelloBytes - guest.have, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    guest.have += static_cast<size_t>(got);
  }
  if (guest.greeted) return true;
  guest.greeted = decode(guest.bytes, &guest.hello);
  guest.deadline = now + kToBeWanted;
  return guest.greeted;
}

}  // namespace weft::tcp
