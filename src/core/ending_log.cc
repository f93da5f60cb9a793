// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/ending_log.h"

#include <array>
#include <chrono>
#include <cinttypes>
#include <mutex>
#include <string>

#include "src/base/fnv.h"
#include "src/base/log.h"

namespace weft::core {

namespace {

struct Said {
  const control::Peer* peer = nullptr;
  control::Incarnation incarnation{};  // an address may come again
  uint64_t reason = 0;
  TimePoint at{};
  size_t comms = 0;  // that ended for it since then
};

// Texts that differ in numbers only (of receives, rails, bytes) are one reason. A peer that is gone is gone,
// whatever rail it was on.
uint64_t reasonOf(const Ending& ending) {
  std::string reason = ending.by == Ending::By::gone ? "gone" : ending.error.message();
  std::erase_if(reason, [](unsigned char c) { return c >= '0' && c <= '9'; });
  return fnv1a(reason);
}

// One for the process, as the log is; nothing to destroy, as threads may log while a process exits.
class SaidReasons {
 public:
  // How many comms ended for it with these; 0: it has to be said.
  size_t count(const control::Peer& peer, size_t comms, uint64_t reason, TimePoint now) {
    const std::lock_guard lock(mutex_);
    for (Said& said : said_) {
      if (said.peer != &peer || said.incarnation != peer.incarnation() || said.reason != reason) continue;
      if (now < said.at || now - said.at > kSaidAgainAfter) continue;
      return said.comms += comms;
    }
    said_[next_++ % said_.size()] = {&peer, peer.incarnation(), reason, now, comms};
    return 0;
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    said_ = {};
    next_ = 0;
  }

 private:
  std::mutex mutex_;
  std::array<Said, 64> said_{};
  size_t next_ = 0;
};

constinit SaidReasons saidReasons;

// The peer that was lost last. Like the above, one for the process, with nothing to destroy.
class LastLoss {
 public:
  void note(const control::Peer& peer, const Ending& ending, TimePoint now) {
    const std::lock_guard lock(mutex_);
    peer_ = &peer;
    at_ = now;
    const std::string text = "comms to " + peer.name() + " ended: " + ending.error.message();
    text_[text.copy(text_.data(), text_.size() - 1)] = '\0';
  }
  // In words, where another one was lost not long before; else nothing.
  std::string before(const control::Peer& peer, TimePoint now) {
    const std::lock_guard lock(mutex_);
    if (!peer_ || peer_ == &peer || now < at_ || now - at_ > kFollowsLoss) return {};
    const auto passed = std::chrono::duration_cast<std::chrono::seconds>(now - at_);
    return format("; %" PRId64 " s earlier %s", int64_t{passed.count()}, text_.data());
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    peer_ = nullptr;
  }

 private:
  std::mutex mutex_;
  const control::Peer* peer_ = nullptr;
  TimePoint at_{};
  std::array<char, 512> text_{};
};

constinit LastLoss lastLoss;

}  // namespace

void logEnding(const control::PeerRef& peer, size_t comms, const Ending& ending, TimePoint now) {
  if (comms == 0) return;
  const char* plural = comms > 1 ? "s" : "";
  if (ending.by == Ending::By::gone) lastLoss.note(*peer, ending, now);
  if (const size_t all = saidReasons.count(*peer, comms, reasonOf(ending), now); all > 0) {
    WEFT_LOG(info, "%zu more comm%s to %s ended for that reason, %zu so far", comms, plural,
             peer->name().c_str(), all);
  } else {
    const std::string cause = ending.by == Ending::By::peer ? lastLoss.before(*peer, now) : std::string();
    WEFT_LOG(warn, "%zu comm%s to %s ended: %s%s", comms, plural, peer->name().c_str(),
             ending.error.message().c_str(), cause.c_str());
  }
}

void forgetEndings() {
  saidReasons.forget();
  lastLoss.forget();
}

}  // namespace weft::core
