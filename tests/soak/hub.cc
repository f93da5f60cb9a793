// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/soak/hub.h"

#include <algorithm>
#include <thread>

#include "src/base/log.h"

namespace weft::soak {

using system::CaseFailed;
using system::Random;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLongestRound{20};
constexpr uint64_t kFewestRounds = 6;     // a soak of seconds has shorter ones
constexpr uint64_t kWarmRounds = 3;       // before the footprint counts: allocators settle
constexpr Milliseconds kGoodbye{65'000};  // it looks first at what it still holds, see footprint.cc

std::string commandLine(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += " '" + argument + "'";
  return text.substr(1);
}

}  // namespace

void Hub::run() {
  const auto whole = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double, std::ratio<60>>(options_.minutes));
  const auto end = begin_ + whole;
  const auto longestRound = std::min<Clock::duration>(kLongestRound, whole / kFewestRounds);
  Footprint settled;
  uint64_t madeBefore = 0;
  // However long its rounds took, it does not end without a look at the footprint.
  for (uint64_t number = 0; (Clock::now() < end || number < kWarmRounds) && run_.failures() == 0; ++number) {
    roundEnd_ = std::min(end, Clock::now() + longestRound);
    round(number);
    if (number + 1 < kWarmRounds) {
      settled = footprint();
      madeBefore = connections_;
    } else {
      checkFootprint(run_, "hub", settled, connections_ - madeBefore);
    }
    report(number);
  }
}

void Hub::round(uint64_t number) {
  std::vector<std::thread> threads;
  for (int peer = 0; peer < options_.peers; ++peer) {
    const uint64_t seed = options_.seed * 1'000'003 + number * 101 + static_cast<uint64_t>(peer);
    threads.emplace_back([this, seed] {
      try {
        servePeer(seed);
      } catch (const CaseFailed&) {
        // Reported where it happened.
      } catch (const std::exception& e) {
        run_.expect(false, std::string("exception: ") + e.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Lives of one peer, one after the other, until the round ends.
void Hub::servePeer(uint64_t seed) {
  Random random(seed);
  do {
    const bool harsh = random.below(2) == 0;
    auto listener = run_.need(netdriver::listenLocally());
    netdriver::Place place;
    place.size = 2;
    place.port = listener.port;
    const auto arguments = peerArguments(random, harsh, listener.port);
    auto child = run_.need(netdriver::ChildProcess::spawn({arguments}));
    place.listenFd = listener.fd.release();
    const bool killed = !playLife(random, child, place, harsh);
    const auto status = child.wait(kGoodbye);
    run_.expect(status.has_value() && (killed || *status == 0),
                "a peer: " + (status ? netdriver::describeStatus(*status) : "still running") + "; it was " +
                    commandLine(arguments));
    run_.count("peers");
  } while (Clock::now() < roundEnd_ && run_.failures() == 0);
}

// False: the peer was killed.
bool Hub::playLife(Random& random, netdriver::ChildProcess& child, const netdriver::Place& place,
                   bool harsh) {
  system::End end(run_, library_.net(), place, &child);
  for (uint64_t episodes = 2 + random.below(8); episodes > 0; --episodes) {
    const bool last = episodes == 1 || Clock::now() >= roundEnd_ || run_.failures() != 0;
    const Script script = drawScript(random, harsh, last);
    end.exchange(script);
    connections_ += script.links * 2;
    try {
      if (!Episode(run_, end, script).play()) return false;
    } catch (const CaseFailed&) {
      run_.expect(false, "that was in an episode with seed " + std::to_string(script.seed) + ", " +
                             std::to_string(script.links) + " links and incident " +
                             std::to_string(static_cast<int>(script.incident)));
      return true;
    }
    if (last) break;
  }
  return true;
}

Script Hub::drawScript(Random& random, bool harsh, bool last) const {
  Script script;
  script.seed = random.next();
  script.links = 1 + static_cast<uint32_t>(random.below(4));
  script.after = static_cast<uint32_t>(random.below(60));
  script.harsh = harsh;
  script.last = last;
  const uint64_t chance = random.below(20);
  // An incident for every third episode; what belongs to a peer's death is its last episode all the same.
  if (chance < 2) script.incident = Incident::abortHub;
  if (chance == 2 || chance == 3) script.incident = Incident::abortPeer;
  if (chance == 4) script.incident = Incident::killConnecting;
  if (chance == 5 || chance == 6) script.incident = Incident::killTransfer;
  if (chance == 7) script.incident = Incident::stop;
  return script;
}

std::vector<std::string> Hub::peerArguments(Random& random, bool harsh, uint16_t port) const {
  constexpr int kAbis[] = {12, 12, 11, 10, 8};
  std::string rules = gentleRules(random.next());
  if (harsh) rules += harshRules(random.next());
  std::vector<std::string> arguments = {netdriver::ownPath(),
                                        "--plugin",
                                        options_.plugin,
                                        "--port",
                                        std::to_string(port),
                                        "--abi",
                                        std::to_string(kAbis[random.below(std::size(kAbis))]),
                                        "--seed",
                                        std::to_string(options_.seed),
                                        "--provider",
                                        "fault(" + rules + "):" + options_.provider};
  const auto set = [&](const std::string& assignment) {
    arguments.emplace_back("--env");
    arguments.push_back(assignment);
  };
  if (random.below(3) == 0) set("WEFT_EAGER_MAX=" + std::to_string(random.below(3) * 2000));
  if (random.below(4) == 0) set("WEFT_EAGER_SLOTS=" + std::to_string(1 + random.below(8)));
  if (options_.verbose) arguments.emplace_back("--verbose");
  return arguments;
}

void Hub::report(uint64_t number) const {
  const std::chrono::duration<double> elapsed = Clock::now() - begin_;
  const Footprint now = footprint();
  std::printf(
      "%7.1f s  round %llu: %s; %llu connections, %zu descriptors, %zu threads, %llu KiB, heap %llu KiB\n",
      elapsed.count(), static_cast<unsigned long long>(number + 1), run_.summary().c_str(),
      static_cast<unsigned long long>(connections_.load()), now.descriptors, now.threads,
      static_cast<unsigned long long>(now.resident / 1024), static_cast<unsigned long long>(now.heap / 1024));
  std::fflush(stdout);
}

}  // namespace weft::soak
