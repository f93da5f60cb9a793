// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/mesh.h"

#include <algorithm>

#include "src/base/fnv.h"
#include "src/base/log.h"

// Connecting the ranks, their greetings, and the vote.
namespace weft::coll {

namespace {

// A hash of all handles, without their scratch part: that part belongs to each connector's own copy.
uint64_t groupOf(const std::vector<HandleBytes>& handles) {
  std::string all;
  for (const HandleBytes& handle : handles)
    all.append(reinterpret_cast<const char*>(handle.data()), control::kScratchOffset);
  return fnv1a(all);
}

// The ranks that are wanted and did not answer, in words.
std::string missing(const std::vector<std::unique_ptr<core::SendComm>>& sends,
                    const std::vector<bool>& wanted) {
  std::string ranks;
  for (size_t i = 0; i < sends.size(); i++)
    if (wanted[i] && !sends[i]) ranks += format("%s%zu", ranks.empty() ? "" : ", ", i);
  return ranks;
}

// The next ballot or verdict. Messages left over from a set-up that some rank gave up are skipped.
Result<Bytes> hearVote(Pipe& pipe, Patience& patience) {
  while (true) {
    TRY(Bytes said, pipe.hear(patience));
    if (!isOutOfBand(said)) return said;
  }
}

}  // namespace

Error Mesh::failed(const std::string& why, Code code) const {
  return Error(code, format("connecting %s", options_.purpose), why);
}

Result<std::unique_ptr<Mesh>> Mesh::open(MeshOptions options) {
  auto mesh = std::make_unique<Mesh>(std::move(options));
  mesh->group_ = groupOf(mesh->options_.handles);
  mesh->pipes_.resize(mesh->options_.handles.size());
  TRY(mesh->connectAll());
  TRY(mesh->greetAll());
  return mesh;
}

void Mesh::close() {
  for (const auto& pipe : pipes_)
    if (pipe) pipe->close();
}

Status Mesh::extend() {
  options_.full = true;
  TRY(connectAll());
  return greetAll();
}

// Connects and accepts in turn, so that no rank waits for another in a circle.
Status Mesh::connectAll() {
  core::Net& net = options_.context->net();
  Patience patience(clock(), options_.timeout);
  std::vector<HandleBytes> handles = options_.handles;  // connect() keeps its progress in its copy
  std::vector<bool> wanted;
  size_t left = 0;
  for (int peer = 0; peer < ranks(); peer++) wanted.push_back(joins(peer));
  const auto expected = static_cast<size_t>(std::count(wanted.begin(), wanted.end(), true));
  sends_.resize(handles.size());
  left = expected;
  while (left > 0 || accepted_.size() < expected) {
    for (size_t peer = 0; peer < handles.size(); peer++) {
      if (!wanted[peer] || sends_[peer]) continue;
      auto send = net.connect(options_.context, options_.device, handles[peer]);
      if (!send)
        return failed(format("rank %zu: %s", peer, send.error().message().c_str()), send.error().code());
      sends_[peer] = send.take();
      if (sends_[peer]) left--;
    }
    if (accepted_.size() < expected) {
      auto receive = net.accept(*options_.listener);
      if (!receive) return failed(receive.error().message(), receive.error().code());
      if (*receive) accepted_.push_back(receive.take());
    }
    if (patience.over())
      return failed(
          left > 0 ? format("rank %s does not answer; %s", missing(sends_, wanted).c_str(), options_.hint)
                   : format("%zu ranks did not connect", expected - accepted_.size()),
          Code::timeout);
    patience.pause();
  }
  return {};
}

// The first message on an accepted comm says which rank has connected. Receives are posted before hellos are
// sent: without eager messages a hello leaves only when its receive is posted.
Status Mesh::greetAll() {
  Patience patience(clock(), options_.timeout);
  const Bytes hello = Hello{group_, static_cast<uint32_t>(rank()), static_cast<uint32_t>(ranks())}.encode();
  std::vector<std::unique_ptr<Pipe>> outgoing(sends_.size()), incoming;
  for (auto& comm : accepted_) {
    TRY(auto pipe, Pipe::create(nullptr, std::move(comm), "a rank", clock()));
    TRY(pipe->expect(patience));
    incoming.push_back(std::move(pipe));
  }
  for (size_t peer = 0; peer < sends_.size(); peer++) {
    if (!sends_[peer]) continue;
    TRY(outgoing[peer], Pipe::create(std::move(sends_[peer]), nullptr, format("rank %zu", peer), clock()));
    TRY(outgoing[peer]->tell(hello, patience));
  }
  for (auto& pipe : incoming) {
    TRY(const Bytes said, pipe->hear(patience));
    TRY(const Hello from, decodeHello(said));
    if (from.group != group_ || from.ranks != static_cast<uint32_t>(ranks()) ||
        !joins(static_cast<int>(from.rank)) || pipes_[from.rank])
      return failed(format("rank %u of %u called, which does not belong to this group of %d", from.rank,
                           from.ranks, ranks()));
    TRY(pipes_[from.rank], Pipe::join(std::move(outgoing[from.rank]), std::move(pipe)));
  }
  accepted_.clear();
  sends_.clear();
  return {};
}

Result<Verdict> Mesh::vote(const Ballot& mine) {
  Patience patience(clock(), options_.timeout);
  if (rank() == 0) return countVotes(mine, patience);
  // A rank that comes late to rank 0 delays the verdict by as much again, and the verdict names that rank.
  TRY(pipe(0)->tell(mine.encode(), patience));
  Patience longer(clock(), 2 * options_.timeout);
  TRY(const Bytes said, hearVote(*pipe(0), longer));
  return decodeVerdict(said);
}

// Rank 0 counts. A rank whose ballot does not come counts as a vote against the group, with the error as the
// reason. Each rank is told how many ranks share its place.
Result<Verdict> Mesh::countVotes(const Ballot& mine, Patience& patience) {
  std::vector<Ballot> ballots(static_cast<size_t>(ranks()));
  ballots[0] = mine;
  for (int peer = 1; peer < ranks(); peer++) {
    Ballot& ballot = ballots[static_cast<size_t>(peer)];
    auto said = hearVote(*pipe(peer), patience);
    auto decoded = said ? decodeBallot(*said) : Result<Ballot>(said.takeError());
    if (decoded)
      ballot = decoded.take();
    else
      ballot.reason = decoded.error().message();
  }
  Verdict verdict = count(ballots);
  Patience telling(clock(), options_.timeout);
  for (int peer = ranks() - 1; peer >= 0; peer--) {
    const std::string& place = ballots[static_cast<size_t>(peer)].place;
    verdict.local = static_cast<uint32_t>(
        std::count_if(ballots.begin(), ballots.end(), [&](const Ballot& one) { return one.place == place; }));
    if (peer == 0) break;
    if (const Status told = pipe(peer)->tell(verdict.encode(), telling); !told)
      WEFT_LOG(info, "a collective group's verdict does not reach rank %d: %s", peer,
               told.error().message().c_str());
  }
  return verdict;
}

}  // namespace weft::coll
