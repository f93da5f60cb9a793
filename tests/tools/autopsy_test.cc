// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/autopsy.h"

#include "tests/support/catch.h"

// Verdicts about ranks whose counters the test makes up: four in a ring.
using namespace weft;
using namespace weft::counted;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kNow = 1'000'000 * kSecond;

std::string placeOf(int rank) {
  return "rank " + std::to_string(rank) + " on node7";
}

// A rank that receives from the one before it; its receive of `since` is in flight, 0: none is.
Process rankOf(int rank, uint64_t movedLast, uint64_t since) {
  Process process;
  process.presence = {100 + rank, 1, "world", placeOf(rank)};
  process.state = ProcessState::runs;
  process.begun = kNow - 100 * kSecond;
  process.beat = process.now = kNow;
  Comm comm;
  comm.state = stats::LineState::live;
  const int from = (rank + 3) % 4;
  comm.peer = placeOf(from) + " pid " + std::to_string(100 + from) + " (127.0.0.1)";
  comm.requests.push_back({1, movedLast, movedLast, 0, movedLast, 0, 0, 8, stats::Way::eager});
  if (since != 0) comm.requests.push_back({2, since, since, 0, 0, 0, 1, 8, stats::Way::none});
  process.comms.push_back(comm);
  return process;
}

std::vector<Process> ring(uint64_t movedLast, uint64_t since) {
  std::vector<Process> ranks;
  for (int rank = 0; rank < 4; rank++) ranks.push_back(rankOf(rank, movedLast, since));
  return ranks;
}

}  // namespace

TEST_CASE("ranks that move have no culprit, though each of them waits for something") {
  CHECK(judge(ring(kNow - kSecond / 10, kNow - kSecond / 10)).kind == "none");
  CHECK(judge(ring(kNow - 60 * kSecond, 0)).kind == "none");
}

TEST_CASE("receives that may stand make no rank late, and no circle") {
  std::vector<Process> ranks = ring(kNow - 60 * kSecond, kNow - 60 * kSecond);
  CHECK(judge(ranks).kind == "circle");
  for (Process& rank : ranks) rank.comms[0].mayIdle = true;
  CHECK(judge(ranks).kind == "none");
  // A send of theirs that waits counts all the same.
  Comm sends = ranks[1].comms[0];
  sends.sends = true;
  sends.waitsSince = kNow - 50 * kSecond;
  ranks[1].comms.push_back(sends);
  CHECK(judge(ranks).kind == "late");
}

TEST_CASE("the rank that others wait for and that waits for nobody is late") {
  std::vector<Process> ranks = ring(kNow - 10 * kSecond, kNow - 10 * kSecond);
  ranks[2] = rankOf(2, kNow - 11 * kSecond, 0);
  const Verdict verdict = judge(ranks);
  CHECK(verdict.kind == "late");
  CHECK(verdict.culprit == &ranks[2]);
  REQUIRE(verdict.evidence.size() == 1);
  CHECK(verdict.evidence[0].find(
            "rank 3 on node7 pid 103 waits 10.0 s to receive from rank 2 on node7 pid 102") == 0);
}

TEST_CASE("a rank of which not all comms were counted is not late for waiting by none of the others") {
  std::vector<Process> ranks = ring(kNow - 10 * kSecond, kNow - 10 * kSecond);
  ranks[2] = rankOf(2, kNow - 11 * kSecond, 0);
  ranks[2].leftOut = 1;
  const Verdict verdict = judge(ranks);
  CHECK(verdict.kind == "unseen");
  CHECK(verdict.culprit == nullptr);
  CHECK(verdict.evidence.back().find("rank 2 on node7 pid 102 waits for nobody, but 1 of its comms") == 0);
}

TEST_CASE("where all wait it is the one that has stood still the longest") {
  std::vector<Process> ranks = ring(kNow - 10 * kSecond, kNow - 10 * kSecond);
  ranks[1] = rankOf(1, kNow - 12 * kSecond, kNow - 12 * kSecond);
  const Verdict verdict = judge(ranks);
  CHECK(verdict.kind == "circle");
  CHECK(verdict.culprit == &ranks[1]);
}

TEST_CASE("in a ring that stands still it is the one that a rank waits for with the lowest message number") {
  std::vector<Process> ranks = ring(kNow - 10 * kSecond, kNow - 10 * kSecond);
  for (size_t rank = 0; rank < 4; rank++) ranks[rank].comms[0].requests.back().k = 20 + (rank + 1) % 4;
  const Verdict verdict = judge(ranks);
  CHECK(verdict.kind == "circle");
  CHECK(verdict.culprit == &ranks[2]);  // rank 3 waits for message 20 of it
}

TEST_CASE("a rank that is gone, stopped or silent comes before ranks that wait") {
  std::vector<Process> ranks = ring(kNow - 10 * kSecond, kNow - 10 * kSecond);
  ranks[3].state = ProcessState::stopped;
  CHECK(judge(ranks).kind == "stopped");
  CHECK(judge(ranks).culprit == &ranks[3]);
  ranks = ring(kNow - 10 * kSecond, kNow - 10 * kSecond);
  ranks[0].state = ProcessState::unknown;
  ranks[0].beat = ranks[0].now = kNow - 9 * kSecond;
  CHECK(judge(ranks).kind == "silent");
  ranks[1].state = ProcessState::gone;
  ranks[1].comms[0].requests.front().posted -= 5 * kSecond;
  ranks[1].comms[0].requests.front().done -= 5 * kSecond;
  ranks[1].comms[0].requests.pop_back();
  CHECK(judge(ranks).kind == "died");
  CHECK(judge(ranks).culprit == &ranks[1]);
}

TEST_CASE("ranks that ended with an error are no culprits, and name the one that is") {
  std::vector<Process> ranks = ring(kNow - 10 * kSecond, 0);
  const auto fail = [&](int rank) {
    ranks[rank].state = ProcessState::gone;
    ranks[rank].comms[0].state = stats::LineState::failed;
  };
  fail(3);
  SECTION("with a rank that died it is that one") {
    ranks[2].state = ProcessState::gone;
    const Verdict verdict = judge(ranks);
    CHECK(verdict.kind == "died");
    CHECK(verdict.culprit == &ranks[2]);
  }
  SECTION("of a rank that left nothing the peers' word is left") {
    ranks.erase(ranks.begin() + 2);
    const Verdict verdict = judge(ranks);
    CHECK(verdict.kind == "failed");
    CHECK(verdict.culprit == nullptr);
    CHECK(verdict.peer == "rank 2 on node7 pid 102 (127.0.0.1)");
    CHECK(verdict.evidence.size() == 1);
  }
  SECTION("two ends that name each other are both named in the evidence alone") {
    fail(2);
    ranks[2].comms[0].peer = ranks[3].presence.place + " pid 103 (127.0.0.1)";
    ranks[3].comms.push_back(ranks[3].comms[0]);  // that one has more of them
    const Verdict verdict = judge(ranks);
    CHECK(verdict.kind == "failed");
    CHECK(verdict.peer.empty());
    CHECK(verdict.evidence.size() == 3);
  }
}

namespace {

// The sending end that belongs to what a rank of the ring receives by.
Comm& sendsTo(std::vector<Process>* ranks, size_t rank) {
  const size_t to = (rank + 1) % 4;
  Comm comm;
  comm.sends = true;
  comm.state = stats::LineState::live;
  comm.number = 1;
  comm.remote = 2;
  comm.peer = placeOf(static_cast<int>(to)) + " pid " + std::to_string(100 + to) + " (127.0.0.1)";
  Comm& receives = (*ranks)[to].comms[0];
  receives.number = 2;
  receives.remote = 1;
  (*ranks)[rank].comms.push_back(comm);
  return (*ranks)[rank].comms.back();
}

}  // namespace

TEST_CASE("waits are followed to the rank that waits for nobody") {
  std::vector<Process> ranks = ring(kNow - 10 * kSecond, kNow - 10 * kSecond);
  ranks[2] = rankOf(2, kNow - 11 * kSecond, 0);
  ranks[1] = rankOf(1, kNow - 30 * kSecond, 0);  // nobody that stands still waits for it
  const Verdict verdict = judge(ranks);
  CHECK(verdict.kind == "late");
  CHECK(verdict.culprit == &ranks[2]);
}

TEST_CASE("a rank that left nothing is named by those that wait for it") {
  std::vector<Process> ranks = ring(kNow - 10 * kSecond, kNow - 10 * kSecond);
  ranks.erase(ranks.begin() + 1);
  const Verdict verdict = judge(ranks);
  CHECK(verdict.kind == "unseen");
  CHECK(verdict.culprit == nullptr);
  CHECK(verdict.peer == "rank 1 on node7 pid 101 (127.0.0.1)");
}

namespace {

// The comm by which `rank`, on node7, receives from `peer`, on node8 and not among those read.
Comm fromNode8(int peer, stats::PeerState state, uint64_t since) {
  Comm comm;
  comm.state = stats::LineState::live;
  comm.peer = "rank " + std::to_string(peer) + " on node8 pid " + std::to_string(100 + peer) + " (127.0.0.1)";
  comm.peerState = state;
  if (since != 0) comm.requests.push_back({2, since, since, 0, 0, 0, 1, 8, stats::Way::none});
  return comm;
}

// Ranks 0 and 3 of a ring of four; the others are on node8, whose files are not here.
std::vector<Process> halfOfRing(stats::PeerState ofRank1, stats::PeerState ofRank2) {
  const uint64_t since = kNow - 10 * kSecond;
  std::vector<Process> ranks = {rankOf(0, since, since), rankOf(3, since, since)};
  ranks[0].comms.push_back(fromNode8(1, ofRank1, 0));
  ranks[1].comms[0] = fromNode8(2, ofRank2, since);
  return ranks;
}

}  // namespace

TEST_CASE("of several ranks that left nothing none is named for a wait that leads there") {
  using stats::PeerState;
  SECTION("all of them may be to blame") {
    const Verdict verdict = judge(halfOfRing(PeerState::answers, PeerState::answers));
    CHECK(verdict.kind == "unseen");
    CHECK(verdict.culprit == nullptr);
    CHECK(verdict.peer.empty());
    REQUIRE(verdict.unseen.size() == 2);
    CHECK(verdict.unseen[0].name == "rank 1 on node8 pid 101");
    CHECK(verdict.unseen[1].name == "rank 2 on node8 pid 102");
    REQUIRE(verdict.unseen[1].said.size() == 1);
    CHECK(verdict.unseen[1].said[0].find(
              "rank 3 on node7 pid 103 waits 10.0 s to receive from rank 2 on node8") == 0);
    CHECK(verdict.unseen[1].said[0].ends_with("; it answers"));
  }
  SECTION("but one that its peers do not hear") {
    const Verdict verdict = judge(halfOfRing(PeerState::silent, PeerState::answers));
    CHECK(verdict.kind == "unseen");
    CHECK(verdict.peer == "rank 1 on node8 pid 101");
  }
  SECTION("nor where their host may be cut off") {
    CHECK(judge(halfOfRing(PeerState::silent, PeerState::silent)).peer.empty());
  }
  SECTION("a rank alone on its host neither: it may wait for one that nobody here knows") {
    std::vector<Process> ranks = halfOfRing(PeerState::answers, PeerState::answers);
    ranks[0].comms.pop_back();
    const Verdict verdict = judge(ranks);
    CHECK(verdict.kind == "unseen");
    CHECK(verdict.peer.empty());
    CHECK(verdict.unseen.size() == 1);
  }
  SECTION("for an error neither: it may have ended for another one's") {
    std::vector<Process> ranks = halfOfRing(PeerState::gone, PeerState::gone);
    ranks[0].comms[0].state = stats::LineState::over;
    ranks[0].comms[1].state = ranks[1].comms[0].state = stats::LineState::failed;
    ranks[0].comms.push_back(ranks[1].comms[0]);  // two of them name rank 2, and one rank 1
    const Verdict verdict = judge(ranks);
    CHECK(verdict.kind == "failed");
    CHECK(verdict.peer.empty());
    CHECK(verdict.unseen.size() == 2);
  }
}

TEST_CASE("where ranks were not seen those that were are named on evidence alone") {
  std::vector<Process> ranks = ring(kNow - 10 * kSecond, kNow - 10 * kSecond);
  SECTION("a circle may be the work of another one") {
    ranks[1].comms.push_back(fromNode8(5, stats::PeerState::answers, kNow - 9 * kSecond));
    const Verdict verdict = judge(ranks);
    CHECK(verdict.kind == "unseen");
    CHECK(verdict.culprit == nullptr);
    CHECK(verdict.evidence.size() == 1);
  }
  SECTION("two that are in different collectives may both be right") {
    Comm& sends = sendsTo(&ranks, 2);
    sends.waitsSince = kNow - 10 * kSecond;
    sends.waitTag = 7;
    CHECK(judge(ranks).culprit != nullptr);
    ranks[1].comms.push_back(fromNode8(5, stats::PeerState::answers, 0));
    CHECK(judge(ranks).kind == "order");
    CHECK(judge(ranks).culprit == nullptr);
  }
  SECTION("one that is stopped is to blame") {
    ranks[3].state = ProcessState::stopped;
    ranks[1].comms.push_back(fromNode8(5, stats::PeerState::answers, 0));
    CHECK(judge(ranks).culprit == &ranks[3]);
  }
}

TEST_CASE("counters that were copied before those of others make nobody silent") {
  std::vector<Process> ranks = ring(kNow - kSecond / 10, kNow - kSecond / 10);
  ranks[0].state = ProcessState::unknown;
  ranks[0].beat = ranks[0].now = kNow - 9 * kSecond;
  CHECK(judge(ranks).kind == "silent");
  ranks[1].comms[0].peerState = stats::PeerState::answers;  // it receives from rank 0
  CHECK(judge(ranks).kind == "none");
}

TEST_CASE("two ends that want different tags are in different collectives") {
  std::vector<Process> ranks = ring(kNow - 10 * kSecond, kNow - 10 * kSecond);
  SECTION("a send that is refused") {
    Comm& sends = sendsTo(&ranks, 2);
    sends.waitsSince = kNow - 10 * kSecond;
    sends.waitTag = 7;
  }
  SECTION("one that left by itself") {
    sendsTo(&ranks, 2).requests.push_back(
        {1, kNow - 10 * kSecond, 0, 0, kNow - 10 * kSecond, 7, 0, 8, stats::Way::eager});
  }
  // The other neighbour of rank 2 finds it in another collective, too.
  Comm& sends = sendsTo(&ranks, 1);
  sends.waitsSince = kNow - 10 * kSecond;
  sends.waitTag = 9;
  const Verdict verdict = judge(ranks);
  CHECK(verdict.kind == "order");
  CHECK(verdict.culprit == &ranks[2]);
  REQUIRE(verdict.evidence.size() == 2);
}

TEST_CASE("a sender that is ahead of its receiver is in the same collective") {
  std::vector<Process> ranks = ring(kNow - 10 * kSecond, kNow - 10 * kSecond);
  Comm& sends = sendsTo(&ranks, 2);
  sends.waitsSince = kNow - 10 * kSecond;
  sends.waitK = 40;
  CHECK(judge(ranks).kind == "circle");
}

TEST_CASE("the first error of all ranks comes first, with its reason") {
  std::vector<Process> ranks = ring(kNow - 10 * kSecond, 0);
  const auto fail = [&](size_t rank, uint64_t at, const char* reason) {
    ranks[rank].comms[0].state = stats::LineState::failed;
    ranks[rank].comms[0].failedAt = at;
    ranks[rank].comms[0].reason = reason;
  };
  fail(0, kNow - 8 * kSecond, "peer gone");
  SECTION("whatever it is") {
    fail(3, kNow - 9 * kSecond, "the cable is out");
    const Verdict verdict = judge(ranks);
    CHECK(verdict.kind == "failed");
    REQUIRE(verdict.evidence.size() == 2);
    CHECK(verdict.evidence[0].find("rank 3 on node7 pid 103: comm ") == 0);
    CHECK(verdict.evidence[0].ends_with(": the cable is out"));
  }
  SECTION("bytes that changed on the way") {
    fail(2, 3000, "rank 1 reports: checking a message's bytes: tag 0, message 7 of 64 bytes");
    fail(1, 2000, "checking a message's bytes: tag 0, message 7 of 64 bytes");
    const Verdict verdict = judge(ranks);
    CHECK(verdict.kind == "corrupt");
    CHECK(verdict.evidence.front().find("message 7 of 64 bytes") != std::string::npos);
  }
  SECTION("sizes that do not match") {
    fail(3, kNow - 9 * kSecond, "matching a message: tag 1, message 2: 8 bytes sent to rank 3, which ...");
    const Verdict verdict = judge(ranks);
    CHECK(verdict.kind == "size");
    CHECK(verdict.peer == "rank 2 on node7 pid 102 (127.0.0.1)");
  }
  SECTION("a rank that died of it is no culprit") {
    fail(3, kNow - 9 * kSecond, "the cable is out");
    ranks[3].state = ranks[0].state = ProcessState::gone;
    CHECK(judge(ranks).kind == "failed");
  }
}

TEST_CASE("rails that are down are told where nobody stands still") {
  std::vector<Process> ranks = ring(kNow - kSecond / 10, kNow - kSecond / 10);
  ranks[1].comms[0].lanes = 2;
  ranks[1].comms[0].lanesUp = 1;
  CHECK(judge(ranks).kind == "none");  // it has carried nothing yet: they may be on their way up
  ranks[1].comms[0].messages = 1;
  const Verdict verdict = judge(ranks);
  CHECK(verdict.kind == "rail");
  REQUIRE(verdict.evidence.size() == 1);
  CHECK(verdict.evidence[0].find("1 of 2 lanes up") != std::string::npos);
}

// The comm by which `rank` sends to or receives from `peer`: the numbers of both ends are made of both.
Comm commOf(int rank, int peer, bool sends) {
  Comm comm;
  comm.state = stats::LineState::live;
  comm.sends = sends;
  comm.peer = placeOf(peer) + " pid " + std::to_string(100 + peer) + " (127.0.0.1)";
  comm.number = static_cast<uint32_t>(10 * rank + peer);
  comm.remote = static_cast<uint32_t>(10 * peer + rank);
  return comm;
}

// A child and its parent in a tree, after some operations; the child is rank 0. Message k goes up, then k
// comes down, and each rank has the receive of the next one posted. `up` and `down` have gone in the last
// operation.
std::vector<Process> childAndParent(bool up, bool down) {
  constexpr uint32_t kLast = 8;
  std::vector<Process> ranks = {rankOf(0, kNow - 20 * kSecond, 0), rankOf(1, kNow - 20 * kSecond, 0)};
  for (int rank : {0, 1}) {
    const bool isChild = rank == 0;
    Comm sends = commOf(rank, 1 - rank, true);
    Comm receives = commOf(rank, 1 - rank, false);
    for (uint32_t k = 0; k <= kLast; k++) {
      const uint64_t at = kNow - (20 - k) * kSecond;
      const uint64_t sent = at + (isChild ? 0 : kSecond / 5),
                     came = at + (isChild ? kSecond / 4 : kSecond / 10);
      if (k < kLast || (isChild ? up : down))
        sends.requests.push_back({k, sent, sent, sent, sent, 0, k, 8, stats::Way::eager});
      const bool here = k < kLast || (isChild ? down : up);
      receives.requests.push_back(
          {k, at - kSecond / 2, at, here ? came : 0, here ? came : 0, 0, k, 8, stats::Way::eager});
      if (k == kLast && here)
        receives.requests.push_back({k + 1, at, at, 0, 0, 0, k + 1, 8, stats::Way::none});
    }
    ranks[static_cast<size_t>(rank)].comms = {sends, receives};
  }
  return ranks;
}

TEST_CASE("a receive that is posted ahead is no wait for a rank that has to send first") {
  SECTION("the child has sent nothing up: the parent's answer is not awaited yet") {
    const std::vector<Process> ranks = childAndParent(false, false);
    CHECK(judge(ranks).kind == "late");
    CHECK(judge(ranks).culprit == &ranks[0]);
  }
  SECTION("the parent has what the child sent, and has not answered") {
    const std::vector<Process> ranks = childAndParent(true, false);
    CHECK(judge(ranks).kind == "late");
    CHECK(judge(ranks).culprit == &ranks[1]);
  }
  SECTION("of a few messages no habit is known") {
    std::vector<Process> ranks = childAndParent(false, false);
    for (Process& rank : ranks)
      for (Comm& comm : rank.comms) comm.requests.erase(comm.requests.begin(), comm.requests.begin() + 5);
    CHECK(judge(ranks).kind == "circle");
  }
  SECTION("a message that was sent and has not come is not owed") {
    std::vector<Process> ranks = childAndParent(true, false);
    ranks[1].comms[1].requests.pop_back();
    ranks[1].comms[1].requests.back().first = ranks[1].comms[1].requests.back().done = 0;
    CHECK(judge(ranks).kind == "circle");
  }
}
