// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/handshakes.h"

#include <algorithm>

#include "src/base/log.h"

// Calls, greetings, and who is missing in the end.
namespace weft::coll {

Handshakes::Handshakes(const MeshOptions& options, uint64_t group, const std::vector<int>& ranks)
    : options_(options), group_(group) {
  for (const int rank : ranks) {
    Other other;
    other.rank = rank;
    other.handle = options.handles[static_cast<size_t>(rank)];
    others_.push_back(std::move(other));
  }
}

Error Handshakes::failed(const std::string& why, Code code) const {
  return Error(code, format("connecting %s", options_.purpose), why);
}

// Connects and accepts in turn, so that no rank waits for another in a circle.
Status Handshakes::run() {
  Patience patience(options_.context->net().clock(), options_.timeout);
  while (true) {
    for (Other& other : others_) {
      if (other.state == Other::State::asked) TRY(connect(other));
      if (other.state == Other::State::greeting) greet(other);
    }
    TRY(accept());
    TRY(hearStrangers());
    if (over() || patience.over()) return {};
    patience.pause();
  }
}

Status Handshakes::connect(Other& other) {
  core::Net& net = options_.context->net();
  auto comm = net.connect(options_.context, options_.device, other.handle);
  if (!comm) return lose(other, comm.error()), Status();
  if (!*comm) return {};
  TRY(other.outgoing, Pipe::create(comm.take(), nullptr, format("rank %d", other.rank)));
  other.enter(Other::State::greeting);
  other.outgoing->put(
      Hello{group_, static_cast<uint32_t>(options_.rank), static_cast<uint32_t>(options_.ranks())}.encode());
  return {};
}

void Handshakes::greet(Other& other) {
  const auto sent = other.outgoing->sent();
  if (!sent) return lose(other, sent.error());
  if (*sent) other.enter(Other::State::greeted);
}

void Handshakes::lose(Other& other, const Error& error) {
  other.enter(Other::State::lost);
  other.why = error.message();
  other.code = error.code();
}

// The receive of a hello is posted at once: without eager messages a hello leaves only then.
Status Handshakes::accept() {
  if (accepted_ == others_.size()) return {};
  core::Net& net = options_.context->net();
  auto comm = net.accept(*options_.listener);
  if (comm && !*comm) return {};
  accepted_++;
  if (!comm) return takeLoss(comm.error()), Status();
  TRY(auto pipe, Pipe::create(nullptr, comm.take(), "a rank"));
  strangers_.push_back(std::move(pipe));
  return {};
}

Status Handshakes::hearStrangers() {
  for (size_t i = strangers_.size(); i-- > 0;) {
    auto said = strangers_[i]->heard();
    if (said && !*said) continue;
    auto pipe = std::move(strangers_[i]);
    strangers_.erase(strangers_.begin() + static_cast<ptrdiff_t>(i));
    if (!said) takeLoss(said.error());
    if (said) TRY(welcome(**said, std::move(pipe)));
  }
  return {};
}

void Handshakes::takeLoss(const Error& error) {
  if (broken_++ == 0) brokenWhy_ = error.message();
}

Handshakes::Other* Handshakes::find(int rank) {
  const auto found =
      std::find_if(others_.begin(), others_.end(), [&](const Other& other) { return other.rank == rank; });
  return found == others_.end() ? nullptr : &*found;
}

Status Handshakes::welcome(const Bytes& said, std::unique_ptr<Pipe> pipe) {
  TRY(const Hello from, decodeHello(said));
  Other* const known = find(static_cast<int>(from.rank));
  if (from.group != group_ || from.ranks != static_cast<uint32_t>(options_.ranks()) || !known ||
      known->incoming)
    return failed(format("rank %u of %u called, which does not belong to this group of %d", from.rank,
                         from.ranks, options_.ranks()));
  known->incoming = std::move(pipe);
  return {};
}

// Ranks that are neither here nor lost.
size_t Handshakes::awaited() const {
  return static_cast<size_t>(std::count_if(others_.begin(), others_.end(), [](const Other& other) {
    return !other.here() && other.state != Other::State::lost;
  }));
}

// Which rank a connection was of that failed before its hello is not known. Where as many failed as ranks
// have not said hello, it was theirs.
bool Handshakes::over() const {
  if (awaited() == 0) return true;
  const auto silent =
      std::count_if(others_.begin(), others_.end(), [](const Other& other) { return !other.incoming; });
  const bool callsAreOver = std::none_of(others_.begin(), others_.end(), [](const Other& other) {
    return other.state == Other::State::asked || other.state == Other::State::greeting;
  });
  return callsAreOver && broken_ >= static_cast<size_t>(silent);
}

std::string Handshakes::reasonOf(const Other& other) const {
  if (other.state == Other::State::lost) return other.why;
  if (broken_ > 0 && !other.incoming) return brokenWhy_;
  if (other.state == Other::State::greeted) return "did not connect";
  return format("does not answer; %s", options_.hint);
}

std::vector<Handshakes::Missing> Handshakes::missing() const {
  std::vector<Missing> missing;
  for (const Other& other : others_)
    if (!other.here()) missing.push_back({other.rank, reasonOf(other)});
  return missing;
}

Error Handshakes::error() const {
  for (const Other& other : others_)
    if (other.state == Other::State::lost)
      return failed(format("rank %d: %s", other.rank, other.why.c_str()), other.code);
  const auto gone = missing();
  std::string ranks;
  for (const Missing& one : gone)
    if (one.why == gone.front().why) ranks += format("%s%d", ranks.empty() ? "" : ", ", one.rank);
  const bool failure = broken_ > 0 && gone.front().why == brokenWhy_;
  return failed(format("rank %s%s %s", ranks.c_str(), failure ? ":" : "", gone.front().why.c_str()),
                failure ? Code::remote : Code::timeout);
}

std::unique_ptr<Pipe> Handshakes::take(int rank) {
  Other* const known = find(rank);
  if (!known || !known->here()) return nullptr;
  return Pipe::join(std::move(known->outgoing), std::move(known->incoming));
}

}  // namespace weft::coll
