// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/mesh.h"

#include <algorithm>

#include "src/base/fnv.h"
#include "src/base/log.h"

// Connecting the ranks, and the vote.
namespace weft::coll {

namespace {

// A hash of all handles, without their scratch part: that part belongs to each connector's own copy.
uint64_t groupOf(const std::vector<HandleBytes>& handles) {
  std::string all;
  for (const HandleBytes& handle : handles)
    all.append(reinterpret_cast<const char*>(handle.data()), control::kScratchOffset);
  return fnv1a(all);
}

// The longest that a rank waits for the verdict, in times of options.timeout: rank 0 may have waited as long
// for a rank that does not come, waits for ballots, and for ranks that do not take its verdict.
constexpr int kVerdictTimes = 4;
// Ranks that are connected with each other between two votes may take one before they vote.
constexpr int kBallotTimes = 2;

// The next ballot or verdict, if it is here. Messages left over from a set-up that some rank gave up are
// skipped.
Result<std::optional<Bytes>> heardVote(Pipe& pipe) {
  while (true) {
    TRY(auto said, pipe.heard());
    if (!said || !isOutOfBand(*said)) return said;
  }
}

Ballot lostBallot(const std::string& why) {
  Ballot ballot;
  ballot.reason = why;
  ballot.came = false;
  return ballot;
}

Result<Bytes> hearVote(Pipe& pipe, Patience& patience) {
  while (true) {
    TRY(Bytes said, pipe.hear(patience));
    if (!isOutOfBand(said)) return said;
  }
}

}  // namespace

Result<std::unique_ptr<Mesh>> Mesh::open(MeshOptions options) {
  auto mesh = std::make_unique<Mesh>(std::move(options));
  mesh->group_ = groupOf(mesh->options_.handles);
  mesh->lastVerdict_ = mesh->clock().now();
  mesh->pipes_.resize(mesh->options_.handles.size());
  TRY(mesh->connect());
  return mesh;
}

void Mesh::close() {
  for (const auto& pipe : pipes_)
    if (pipe) pipe->close();
}

Members Mesh::members() const {
  Members all{{}, rank()};
  for (const auto& pipe : pipes_) all.pipes.push_back(pipe.get());
  return all;
}

Status Mesh::extend() {
  options_.full = true;
  return connect();
}

// With all that belong to it and are not connected yet.
Status Mesh::connect() {
  std::vector<int> others;
  for (int peer = 0; peer < ranks(); peer++)
    if (belongs(peer) && !pipe(peer)) others.push_back(peer);
  Handshakes handshakes(options_, group_, others);
  TRY(handshakes.run());
  missing_ = handshakes.missing();
  Status all = missing_.empty() ? Status() : Status(handshakes.error());
  for (const int peer : others) pipes_[static_cast<size_t>(peer)] = handshakes.take(peer);
  if (options_.full || rank() != 0) return all;
  return {};
}

Result<Verdict> Mesh::vote(Ballot mine) {
  const auto since = std::chrono::duration_cast<Milliseconds>(clock().now() - lastVerdict_);
  mine.afterMs = static_cast<uint32_t>(since.count());
  auto verdict = rank() == 0 ? countVotes(mine) : hearVerdict(mine);
  lastVerdict_ = clock().now();
  return verdict;
}

Result<Verdict> Mesh::hearVerdict(const Ballot& mine) {
  Patience patience(clock(), kVerdictTimes * options_.timeout);
  TRY(pipe(0)->tell(mine.encode(), patience));
  TRY(const Bytes said, hearVote(*pipe(0), patience));
  return decodeVerdict(said);
}

Result<Verdict> Mesh::countVotes(const Ballot& mine) {
  std::vector<Ballot> ballots(static_cast<size_t>(ranks()));
  ballots[0] = mine;
  for (const auto& [peer, why] : missing_) ballots[static_cast<size_t>(peer)] = lostBallot(why);
  collect(ballots);
  Verdict verdict = count(ballots);
  announce(verdict, ballots);
  return verdict;
}

// All are listened to at once: a ballot that waits for its receive would count as late. A rank whose ballot
// does not come is lost, with the error as the reason.
void Mesh::collect(std::vector<Ballot>& ballots) {
  Patience patience(clock(), kBallotTimes * options_.timeout);
  std::vector<bool> awaited(ballots.size());
  for (int peer = 1; peer < ranks(); peer++) awaited[static_cast<size_t>(peer)] = pipe(peer) != nullptr;
  while (true) {
    for (int peer = 1; peer < ranks(); peer++) {
      const auto at = static_cast<size_t>(peer);
      if (!awaited[at]) continue;
      auto said = heardVote(*pipe(peer));
      if (said && !*said) continue;
      auto decoded = said ? decodeBallot(**said) : Result<Ballot>(said.takeError());
      ballots[at] = decoded ? decoded.take() : lostBallot(decoded.error().message());
      awaited[at] = false;
    }
    if (patience.over() || std::find(awaited.begin(), awaited.end(), true) == awaited.end()) break;
    patience.pause();
  }
  for (size_t peer = 1; peer < ballots.size(); peer++)
    if (awaited[peer]) ballots[peer] = lostBallot("nothing was heard from it");
}

// Ranks that are lost may take it or not.
void Mesh::announce(const Verdict& verdict, const std::vector<Ballot>& ballots) {
  std::vector<int> left;
  for (int peer = ranks() - 1; peer > 0; peer--) {
    if (!pipe(peer)) continue;
    pipe(peer)->put(verdict.encode());
    left.push_back(peer);
  }
  Patience patience(clock(), options_.timeout);
  const auto isTold = [&](int peer) {
    const auto sent = pipe(peer)->sent();
    if (!sent)
      WEFT_LOG(info, "a collective group's verdict does not reach rank %d: %s", peer,
               sent.error().message().c_str());
    return !sent || *sent || !ballots[static_cast<size_t>(peer)].came;
  };
  while (true) {
    std::erase_if(left, isTold);
    if (left.empty() || patience.over()) return;
    patience.pause();
  }
}

}  // namespace weft::coll
