// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/cluster_root.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "tools/netdriver/speaker.h"

namespace weft::perf {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kAnswer = std::chrono::seconds(20);      // beyond what a rank itself allows for
constexpr auto kToMeasure = std::chrono::seconds(300);  // a slow path is a result; silence ends it earlier
constexpr auto kTold = std::chrono::seconds(10);
constexpr int kMostWaits = 2;

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

std::string text(const Words& words) {
  return {words.data(), ::strnlen(words.data(), words.size())};
}

double better(double before, double now, bool lower) {
  if (std::isnan(before)) return now;
  return lower ? std::min(before, now) : std::max(before, now);
}

}  // namespace

ClusterRoot::ClusterRoot(netdriver::Bootstrap& bootstrap, ClusterRank& self, ClusterResults* results)
    : bootstrap_(bootstrap), self_(self), results_(*results), began_(Clock::now()), told_(began_) {
  const int size = bootstrap.size();
  results_.latency = CostMatrix(size);
  results_.bandwidth = CostMatrix(size);
  for (int from = 0; from < size; ++from)
    for (int to = 0; to < size; ++to)
      results_.latency.at(from, to) = results_.bandwidth.at(from, to) = kNoNumber;
  for (int rank = 0; rank < size; ++rank)
    if (!bootstrap_.present(rank)) results_.lost.push_back({rank, "it did not appear"});
}

void ClusterRoot::lose(int rank, const std::string& why) {
  bootstrap_.lose(rank);
  results_.lost.push_back({rank, why});
}

// Ourselves too, meanwhile.
ClusterRoot::Answers ClusterRoot::ask(Ask what, const std::map<int, Question>& questions) {
  Answers answers;
  std::vector<int> asked;
  for (const auto& [rank, question] : questions) {
    if (rank == 0) continue;
    if (const Status told = bootstrap_.tell(rank, encode(question)); !told)
      lose(rank, told.error().detail());
    else
      asked.push_back(rank);
  }
  if (const auto own = questions.find(0); own != questions.end()) answers[0] = self_.answer(own->second);
  std::vector<std::pair<int, std::string>> gone;
  const auto deadline = Clock::now() + (what == Ask::measure ? kToMeasure : kAnswer);
  bootstrap_.hearEach(
      asked, deadline, mostOfAnswers(bootstrap_.size()),
      [&](int rank, Result<std::vector<std::byte>> message) {
        auto decoded =
            message ? decodeAnswers(*message) : Result<std::vector<PeerAnswer>>(message.takeError());
        if (decoded && decoded->size() == questions.at(rank).peers.size())
          answers[rank] = decoded.take();
        else
          gone.emplace_back(rank, decoded ? "it answers something else" : decoded.error().detail());
        return true;
      });
  for (const auto& [rank, why] : gone) lose(rank, why);
  return answers;
}

std::map<int, Question> ClusterRoot::questionsFor(const Round& round) const {
  std::map<int, Question> questions;
  for (const RankPair& pair : round) {
    questions[pair.first].peers.push_back({pair.second, 1, {}});
    questions[pair.second].peers.push_back({pair.first, 0, {}});
  }
  return questions;
}

Round ClusterRoot::present(const std::vector<RankPair>& pairs) const {
  Round here;
  for (const RankPair& pair : pairs)
    if (bootstrap_.present(pair.first) && bootstrap_.present(pair.second)) here.push_back(pair);
  return here;
}

// Their listening ends are exchanged, and then all connect.
Round ClusterRoot::reach(const Round& round) {
  auto questions = questionsFor(round);
  for (auto& [rank, question] : questions) question.ask = Ask::listen;
  const Answers listening = ask(Ask::listen, questions);
  const auto answerOf = [](const Answers& answers, const std::map<int, Question>& asked, int rank, int peer) {
    const auto found = answers.find(rank);
    if (found == answers.end()) return PeerAnswer();
    const auto& peers = asked.at(rank).peers;
    for (size_t i = 0; i < peers.size(); ++i)
      if (peers[i].rank == peer) return found->second[i];
    return PeerAnswer();
  };
  for (auto& [rank, question] : questions) {
    question.ask = Ask::connect;
    for (Question::Peer& peer : question.peers)
      peer.handle = answerOf(listening, questions, peer.rank, rank).handle;
  }
  std::erase_if(questions, [&](const auto& entry) { return !bootstrap_.present(entry.first); });
  const Answers connected = ask(Ask::connect, questions);
  Round reached;
  for (const RankPair& pair : present(round)) {
    const PeerAnswer first = answerOf(connected, questions, pair.first, pair.second);
    const PeerAnswer second = answerOf(connected, questions, pair.second, pair.first);
    if (first.well != 0 && second.well != 0)
      reached.push_back(pair);
    else
      noteUnreached(pair, first, second);
  }
  if (reached.size() < round.size()) ++waits_;
  return reached;
}

void ClusterRoot::noteUnreached(const RankPair& pair, const PeerAnswer& first, const PeerAnswer& second) {
  suspects_.insert({pair.first, pair.second});
  const bool firstSends = first.sends != 0;
  const bool secondSends = second.sends != 0;
  DeadPath path{pair.first, pair.second, firstSends == secondSends, {}};
  if (firstSends && !secondSends) std::swap(path.from, path.to);
  path.why = text(path.from == pair.first ? first.why : second.why);
  if (path.why.empty()) path.why = text(path.from == pair.first ? second.why : first.why);
  if (path.why.empty())
    path.why = "no connection within 5 s; is a firewall between them, or another network?";
  results_.dead.push_back(path);
}

// Large messages that stand still behind small ones that pass are what a too small MTU looks like.
void ClusterRoot::noteUnmeasured(const RankPair& pair, const PeerAnswer& first, const PeerAnswer& second) {
  suspects_.insert({pair.first, pair.second});
  std::string why = text(first.well == 0 ? first.why : second.why);
  if (first.small != 0 && second.small != 0)
    why +=
        "; small messages pass: does every switch between them carry the MTU of their interfaces? (ping -M "
        "do -s 8972)";
  results_.dead.push_back({pair.first, pair.second, true, why});
}

void ClusterRoot::measure(const Round& round, bool again) {
  auto questions = questionsFor(round);
  for (auto& [rank, question] : questions) question.ask = Ask::measure;
  const Answers answers = ask(Ask::measure, questions);
  for (const RankPair& pair : present(round)) {
    const auto one = answers.find(pair.first);
    const auto other = answers.find(pair.second);
    if (one == answers.end() || other == answers.end()) continue;
    const PeerAnswer& first = one->second.front();
    const PeerAnswer& second = other->second.front();
    if (first.well == 0 || second.well == 0) {
      if (!again) noteUnmeasured(pair, first, second);
      continue;
    }
    const auto note = [&](int from, int to, const PeerAnswer& receiver) {
      double& latency = results_.latency.at(from, to);
      double& bandwidth = results_.bandwidth.at(from, to);
      latency = better(latency, receiver.latency, true);
      bandwidth = better(bandwidth, receiver.bandwidth, false);
    };
    for (const PeerAnswer* answer : {&first, &second}) results_.costs.better(answer->costs);
    note(pair.second, pair.first, first);
    note(pair.first, pair.second, second);
  }
}

void ClusterRoot::runRounds(std::vector<RankPair> pairs, bool again) {
  std::vector<RankPair> deferred;
  const std::vector<Round> rounds = roundsOf(pairs, results_.hosts);
  size_t number = 0;
  for (const Round& round : rounds) {
    Round now;
    for (const RankPair& pair : present(round)) {
      const bool doubtful =
          waits_ >= kMostWaits || suspects_.count(pair.first) > 0 || suspects_.count(pair.second) > 0;
      (doubtful && !again ? deferred : now).push_back(pair);
    }
    if (!now.empty()) {
      if (const Round reached = reach(now); !reached.empty()) measure(reached, again);
    }
    tellProgress(++number, rounds.size());
  }
  if (deferred.empty()) return;
  for (const Round& round : roundsOf(reach(present(deferred)), results_.hosts))
    if (const Round reached = reach(present(round)); !reached.empty()) measure(reached, false);
}

void ClusterRoot::measureAll() {
  const std::vector<RankPair> pairs = allPairs(bootstrap_.size());
  results_.rounds = roundsOf(pairs, results_.hosts).size();
  runRounds(pairs, false);
  results_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
}

void ClusterRoot::measureAgain(const std::vector<RankPair>& pairs) {
  const auto known = [&](const RankPair& pair) {
    return !std::isnan(results_.latency.at(pair.first, pair.second));
  };
  std::vector<RankPair> worth;
  std::copy_if(pairs.begin(), pairs.end(), std::back_inserter(worth), known);
  runRounds(worth, true);
}

void ClusterRoot::tellProgress(size_t done, size_t of) {
  const auto now = Clock::now();
  if (now - told_ < kTold || done == of) return;
  told_ = now;
  const double passed = std::chrono::duration<double>(now - began_).count();
  fmt::print(stderr, "{}weft perf: {} of {} rounds of pairs after {:.0f} s, about {:.0f} s more\n",
             netdriver::speaker(), done, of, passed,
             passed * static_cast<double>(of - done) / static_cast<double>(done));
}

void ClusterRoot::dismiss() {
  for (int rank = 1; rank < bootstrap_.size(); ++rank)
    if (bootstrap_.present(rank)) (void)bootstrap_.tell(rank, encode(Question{}));
  (void)self_.answer(Question{});
}

}  // namespace weft::perf
