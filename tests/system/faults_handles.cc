// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <array>
#include <csignal>

#include "tests/system/driver/program.h"
#include "tests/system/driver/traffic.h"

// Handles that are not what the listener gave out: every byte damaged in several ways, random ones, ones of
// listeners or processes that are gone. Each connect ends, by itself, and disturbs nobody.
namespace weft::system {
namespace {

using Clock = std::chrono::steady_clock;

// The plugin is told to give up after 5 s; this much later at most it must have.
constexpr Milliseconds kLimit{10'000};

enum class Outcome { pending, connected, refused };

struct Attempt {
  Handle handle{};
  Outcome outcome = Outcome::pending;
  Comm comm;
};

void poll(End& end, Attempt& attempt) {
  if (attempt.outcome != Outcome::pending) return;
  void* raw = nullptr;
  const ncclResult_t result =
      end.net().connect(end.context().raw(), end.device(), attempt.handle.data(), &raw);
  if (result != ncclSuccess && result != ncclInProgress) {
    attempt.outcome = Outcome::refused;
  } else if (raw != nullptr) {
    attempt.outcome = Outcome::connected;
    attempt.comm = Comm(end.net(), netdriver::Side::send, raw);
  }
}

// All of them at once, as a service thread polls its connects.
void pollAll(Run& run, End& end, std::vector<Attempt>& attempts) {
  Deadline deadline(run, "the end of every connect with a bad handle", kLimit);
  for (size_t pending = 1; pending > 0; deadline.check()) {
    pending = 0;
    for (Attempt& attempt : attempts) {
      poll(end, attempt);
      pending += attempt.outcome == Outcome::pending ? 1 : 0;
    }
  }
  for (const Attempt& attempt : attempts)
    run.count(attempt.outcome == Outcome::refused ? "connects refused" : "connects that worked all the same");
}

void proveAlive(Run& run, End& end, uint64_t seed) {
  end.sync();
  const Comm comm = connectOneWay(run, end);
  sendChecked(run, comm, end.receives(), 20000, seed);
  end.sync();
}

constexpr std::array<uint8_t, 3> kDamage = {0xff, 0x01, 0x80};

// Each handle is of a listener of its own, so that a connect that works all the same takes nothing from
// another one.
using Handles = std::array<Handle, sizeof(Handle)>;

std::vector<Attempt> damagedAttempts(const Handles& handles, uint8_t mask) {
  std::vector<Attempt> attempts(handles.size());
  for (size_t byte = 0; byte < handles.size(); ++byte) {
    attempts[byte].handle = handles[byte];
    attempts[byte].handle[byte] ^= std::byte{mask};
  }
  return attempts;
}

// Afterwards the undamaged handle works, unless the damage was in a byte without meaning.
void connectProperly(Run& run, End& end, const Attempt& attempt, const Handle& good,
                     const netdriver::Listener& listener) {
  Handle handle = good;
  const auto worked = static_cast<uint8_t>(attempt.outcome == Outcome::connected);
  if (end.exchange(worked) != 0 || worked != 0) return;
  const Comm comm =
      end.receives() ? finishAccept(run, listener.comm) : finishConnect(run, end, end.context(), &handle);
  end.sync();  // a side that closed at once would take the connection from the other
  run.count("connects with the same listener's own handle");
}

void damaged(Run& run, End& end) {
  run.expectWarnings();
  for (const uint8_t mask : kDamage) {
    std::vector<netdriver::Listener> listeners(sizeof(Handle));
    Handles mine{};
    for (size_t i = 0; end.receives() && i < listeners.size(); ++i) {
      listeners[i] = run.need(netdriver::listen(end.context(), end.device()));
      mine[i] = listeners[i].handle;
    }
    const Handles handles = end.exchange(mine);
    std::vector<Attempt> attempts(handles.size());
    if (!end.receives()) {
      attempts = damagedAttempts(handles, mask);
      pollAll(run, end, attempts);
    }
    end.sync();
    for (size_t i = 0; i < attempts.size(); i += run.scaled<size_t>(8, 1))
      connectProperly(run, end, attempts[i], handles[i], listeners[i]);
    // Most of a handle has a meaning.
    const auto refused = std::count_if(attempts.begin(), attempts.end(),
                                       [](const Attempt& a) { return a.outcome == Outcome::refused; });
    run.expect(end.receives() || refused >= 64,
               "only " + std::to_string(refused) + " of 128 damages were noticed");
    end.sync();
  }
  proveAlive(run, end, 1);
}

// Not a handle of ours at all: refused at once.
void garbage(Run& run, End& end) {
  run.expectWarnings();
  Random random(17);
  std::vector<Attempt> attempts(static_cast<size_t>(run.scaled(64, 2000)));
  for (size_t i = 0; i < attempts.size(); ++i) {
    attempts[i].handle.fill(std::byte{static_cast<uint8_t>(i == 1 ? 0xff : 0)});
    for (size_t b = 0; i > 1 && b < sizeof(Handle); ++b)
      attempts[i].handle[b] = static_cast<std::byte>(random.next());
    if (end.receives()) continue;
    poll(end, attempts[i]);
    run.expect(attempts[i].outcome == Outcome::refused, "a handle of random bytes was not refused at once");
    run.count("handles refused");
  }
  proveAlive(run, end, 2);
}

// Every damage of the handle bytes by chance, several at once.
void randomDamage(Run& run, End& end) {
  run.expectWarnings();
  netdriver::Listener listener;
  if (end.receives()) listener = run.need(netdriver::listen(end.context(), end.device()));
  const Handle good = end.exchange(listener.handle);
  Random random(31);
  std::vector<Attempt> attempts(static_cast<size_t>(run.scaled(64, 512)));
  for (Attempt& attempt : attempts) {
    attempt.handle = good;
    for (uint64_t n = 2 + random.below(8); n > 0; --n)
      attempt.handle[random.below(sizeof(Handle))] ^= static_cast<std::byte>(1 + random.below(255));
  }
  if (!end.receives()) pollAll(run, end, attempts);
  proveAlive(run, end, 3);
}

// The listener is closed before the connect.
void closedListener(Run& run, End& end) {
  run.expectWarnings();
  for (int i = 0; i < run.scaled(5, 50); ++i) {
    netdriver::Listener listener;
    if (end.receives()) listener = run.need(netdriver::listen(end.context(), end.device()));
    std::vector<Attempt> attempts(1);
    attempts[0].handle = end.exchange(listener.handle);
    if (end.receives()) run.success(listener.comm.close(), Call::closeListen);
    end.sync();
    if (!end.receives()) {
      pollAll(run, end, attempts);
      run.expect(attempts[0].outcome == Outcome::refused, "connected to a listener that was closed before");
    }
    end.sync();
  }
  proveAlive(run, end, 4);
}

// A listener that takes one connection does not take another one.
void usedListener(Run& run, End& end) {
  run.expectWarnings();
  netdriver::Listener listener;
  if (end.receives()) listener = run.need(netdriver::listen(end.context(), end.device()));
  const Handle good = end.exchange(listener.handle);
  Handle first = good;
  const Comm comm =
      end.receives() ? finishAccept(run, listener.comm) : finishConnect(run, end, end.context(), &first);
  if (end.receives()) listener.comm.close();
  end.sync();
  if (!end.receives()) {
    std::vector<Attempt> attempts(1);
    attempts[0].handle = good;
    pollAll(run, end, attempts);
    run.expect(attempts[0].outcome == Outcome::refused, "a listener that is closed took a second connection");
  }
  end.sync();
  sendChecked(run, comm, end.receives(), 5000, 9);
  end.sync();
}

// The process that listened is gone before the connect starts.
void processGone(Run& run, End& end) {
  run.expectWarnings();
  netdriver::Listener listener;
  if (!end.receives()) listener = run.need(netdriver::listen(end.context(), end.device()));
  std::vector<Attempt> attempts(1);
  attempts[0].handle = end.exchange(listener.handle);
  if (!end.receives()) {
    Deadline forever(run, "to be killed");
    while (true) forever.check();
  }
  end.peer()->signal(SIGKILL);
  run.require(end.peer()->wait(Milliseconds(5000)).has_value(), "the other process does not die");
  const auto begin = Clock::now();
  pollAll(run, end, attempts);
  const auto ms = std::chrono::duration_cast<Milliseconds>(Clock::now() - begin).count();
  run.expect(attempts[0].outcome == Outcome::refused, "connected to a process that is gone");
  run.count("ms until the error", static_cast<uint64_t>(ms));
}

constexpr const char* kShortTimeout = "WEFT_CONNECT_TIMEOUT=5000";
// Far beyond kLimit: who is refused hears it from the listener.
constexpr const char* kLongTimeout = "WEFT_CONNECT_TIMEOUT=30000";

constexpr Case kCases[] = {
    {.name = "damaged", .pair = &damaged, .environment = kShortTimeout},
    {.name = "garbage", .pair = &garbage, .environment = kShortTimeout},
    {.name = "random-damage", .pair = &randomDamage, .environment = kShortTimeout},
    {.name = "closed-listener", .pair = &closedListener, .environment = kLongTimeout},
    {.name = "used-listener", .pair = &usedListener, .environment = kLongTimeout},
    {.name = "process-gone",
     .pair = &processGone,
     .processesOnly = true,
     .peerMayDie = true,
     .environment = kShortTimeout},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
