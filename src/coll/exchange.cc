// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/exchange.h"

#include <algorithm>
#include <cstring>

#include "src/base/log.h"
#include "src/coll/kernels.h"

// The steps of an exchange, in the order in which progress() takes them.
namespace weft::coll {

namespace {

constexpr size_t kResultBytes = size_t{1} << 20;  // the most bytes of one message of a result
// Foldings of one exchange; as many blocks are reserved for the oldest exchange.
constexpr size_t kFoldingsAtOnce = 4;

}  // namespace

Result<std::unique_ptr<Block>> BlockPool::make() {
  auto block = std::make_unique<Block>();
  TRY(block->memory, Staging::create(static_cast<size_t>(mesh_.ranks()) * pieceBytes_));
  for (int rank = 0; rank < mesh_.ranks(); rank++) {
    block->handles.push_back(nullptr);
    const Pipe* pipe = mesh_.pipe(rank);
    if (!pipe) continue;
    TRY(block->handles.back(), block->memory.registerOn(pipe->receiving()));
  }
  return block;
}

Result<Block*> BlockPool::take(bool oldest) {
  const size_t left = free_.size() + most_ - blocks_.size();
  if (!oldest && left <= kFoldingsAtOnce) return nullptr;
  if (free_.empty() && blocks_.size() < most_) {
    TRY(auto block, make());
    free_.push_back(block.get());
    blocks_.push_back(std::move(block));
  }
  if (free_.empty()) return nullptr;
  Block* block = free_.back();
  free_.pop_back();
  return block;
}

void Exchange::begin(const Operation& operation) {
  const auto ranks = static_cast<size_t>(mesh_.ranks());
  operation_ = operation;
  makePlan(operation, mesh_.ranks(), oneStepBytes_, &plan_);
  contributed_.assign(ranks, 0);
  resultSent_.assign(ranks, 0);
  resultAsked_.assign(ranks, 0);
  opened_ = reduced_ = 0;
  bytesSent_ = 0;
  held_.resize(foldsOverContribution() ? own().bytes : 0);
  enter(State::running);
  if (!plan_.reduces || ranks == 1) takeOwnPart();
}

// Nothing has to be reduced: our part is final as it is, so it is copied to the place of the result unless it
// is there already.
void Exchange::takeOwnPart() {
  opened_ = reduced_ = own().bytes;
  if (own().bytes == 0) return;
  auto* to = static_cast<std::byte*>(operation_.receive);
  if (operation_.kind == OperationKind::allGather) to += own().offset;
  if (to && to != operation_.send) std::memmove(to, operation_.send, own().bytes);
}

bool Exchange::fail(int rank, std::string why) {
  culprit_ = rank;
  why_ = std::move(why);
  return false;
}

// Tests come first, so that requests are free again when the posts need them.
Exchange::Step Exchange::progress(bool oldest, bool mayPost) {
  refused_ = !mayPost;
  bool fine = testFlights();
  if (fine && mayPost)
    fine = postContributions() && openFolding(oldest) && postFoldings() && postResultReceives();
  fine = fine && advanceFoldings();
  if (fine && mayPost) fine = postResults();
  if (!fine) return Step::failed;
  if (!finished()) return Step::going;
  putBack();
  return Step::done;
}

bool Exchange::finished() const {
  if (!flights_.empty() || !foldings_.empty() || reduced_ < own().bytes) return false;
  for (int rank = 0; rank < mesh_.ranks(); rank++) {
    const auto r = static_cast<size_t>(rank);
    if (rank == self()) continue;
    if (plan_.reduces && contributed_[r] < plan_.parts[r].bytes) return false;
    if (plan_.distributes && (resultSent_[r] < own().bytes || resultAsked_[r] < plan_.parts[r].bytes))
      return false;
  }
  return true;
}

bool Exchange::sendPiece(int rank, const std::byte* data, size_t bytes, const core::MemoryHandle* memory,
                         int tag) {
  const Pipe& pipe = *mesh_.pipe(rank);
  const core::Posted posted =
      pipe.sending().isend(data, bytes, tag, const_cast<core::MemoryHandle*>(memory), nullptr);
  if (!posted.ok) return fail(rank, pipe.sending().error().message());
  if (!posted.request) refused_ = true;
  if (!posted.request) return true;
  bytesSent_ += bytes;
  flights_.push_back({posted.request, bytes, rank, true});
  return true;
}

// Sends each rank its part of our vector, in pieces that fit into that rank's blocks. The rank after us is
// the first, so that not all ranks send to the same one at a time. `flights_` without a new entry means that
// there is no room now.
bool Exchange::postContributions() {
  if (!plan_.reduces) return true;
  const auto& memory = *static_cast<const PeersMemory*>(operation_.sendMemory);
  for (int step = 1; step < mesh_.ranks(); step++) {
    const int rank = (self() + step) % mesh_.ranks();
    const auto r = static_cast<size_t>(rank);
    const Part& part = plan_.parts[r];
    while (contributed_[r] < part.bytes) {
      const size_t bytes = std::min(blocks_.pieceBytes(), part.bytes - contributed_[r]);
      const size_t before = flights_.size();
      if (!sendPiece(rank, contribution() + part.offset + contributed_[r], bytes, memory.sending[r],
                     1 + 2 * slot_))
        return false;
      if (flights_.size() == before) break;
      contributed_[r] += bytes;
    }
  }
  return true;
}

// Receivers cut their part into pieces of pieceBytes, as postContributions() of the others does: sender and
// receiver must agree, since each message fits just one receive.
bool Exchange::openFolding(bool oldest) {
  while (opened_ < own().bytes && foldings_.size() < kFoldingsAtOnce) {
    auto taken = blocks_.take(oldest);
    if (!taken) return fail(self(), "memory to reduce in: " + taken.error().message());
    Block* block = *taken;
    if (!block) refused_ = true;
    if (!block) return true;
    const size_t bytes = std::min(blocks_.pieceBytes(), own().bytes - opened_);
    const auto ranks = static_cast<size_t>(mesh_.ranks());
    foldings_.push_back({block, {opened_, bytes}, std::vector<core::Request*>(ranks), mesh_.ranks() - 1, 0});
    opened_ += bytes;
  }
  return true;
}

// The receives of a piece are posted before those of the next one: messages of a tag match receives in the
// order of posting.
bool Exchange::postReceives(Folding& folding) {
  for (int rank = 0; rank < mesh_.ranks() && folding.unposted > 0; rank++) {
    const auto r = static_cast<size_t>(rank);
    if (rank == self() || folding.receives[r]) continue;
    const Pipe& pipe = *mesh_.pipe(rank);
    const core::Posted posted =
        pipe.receiving().irecvOne(blocks_.piece(*folding.block, rank), folding.piece.bytes, 1 + 2 * slot_,
                                  folding.block->handles[r], nullptr);
    if (!posted.ok) return fail(rank, pipe.receiving().error().message());
    folding.receives[r] = posted.request;
    if (posted.request) folding.unposted--;
  }
  return true;
}

// A piece can only be folded when every rank's is here. So the test stops at the first receive that is not
// done: each test of such a receive polls the network.
bool Exchange::testReceives(Folding& folding) {
  for (; folding.next < mesh_.ranks(); folding.next++) {
    if (folding.next == self()) continue;
    const auto r = static_cast<size_t>(folding.next);
    if (!folding.receives[r]) return true;
    int size = 0;
    const core::Tested tested = core::test(folding.receives[r], &size);
    if (!tested.ok) return fail(folding.next, mesh_.pipe(folding.next)->receiving().error().message());
    if (!tested.done) return true;
    if (static_cast<size_t>(size) != folding.piece.bytes)
      return fail(folding.next,
                  format("it sent %d bytes where %zu were expected: the ranks disagree about the operation",
                         size, folding.piece.bytes));
  }
  return true;
}

bool Exchange::postFoldings() {
  for (Folding& folding : foldings_) {
    if (!postReceives(folding)) return false;
    if (folding.unposted == 0) continue;
    refused_ = true;
    break;
  }
  return true;
}

bool Exchange::advanceFoldings() {
  while (!foldings_.empty()) {
    Folding& oldest = foldings_.front();
    if (!testReceives(oldest)) return false;
    if (oldest.next < mesh_.ranks()) return true;
    if (!fold(oldest)) return fail(self(), "a piece of the vector is no number of whole elements");
    blocks_.give(oldest.block);
    foldings_.pop_front();
  }
  return true;
}

void Exchange::putBack() {
  if (!held_.empty()) std::memcpy(operation_.receive, held_.data(), held_.size());
}

// Folds the pieces in the order of the ranks, with ours in its place. So every rank's part has the same bits
// whatever came first. In two steps a rank writes in place only what it does not send: its own part.
bool Exchange::fold(const Folding& folding) {
  const Part& piece = folding.piece;
  const bool scatters = operation_.kind == OperationKind::reduceScatter;
  std::vector<const void*> inputs(static_cast<size_t>(mesh_.ranks()));
  for (int rank = 0; rank < mesh_.ranks(); rank++)
    inputs[static_cast<size_t>(rank)] = blocks_.piece(*folding.block, rank);
  inputs[static_cast<size_t>(self())] = contribution() + own().offset + piece.offset;
  auto* result = held_.empty() ? static_cast<std::byte*>(operation_.receive) : held_.data();
  std::byte* to = result + (scatters ? 0 : own().offset) + piece.offset;
  reduced_ = piece.offset + piece.bytes;
  return reduce(operation_.type, operation_.op, inputs, to, piece.bytes);
}

// The results of our part go out while later pieces are still being reduced.
bool Exchange::postResults() {
  if (!plan_.distributes) return true;
  const bool fromSend = operation_.kind == OperationKind::allGather;
  const auto* memory =
      static_cast<const PeersMemory*>(fromSend ? operation_.sendMemory : operation_.receiveMemory);
  const std::byte* from =
      fromSend ? contribution() : static_cast<const std::byte*>(operation_.receive) + own().offset;
  for (int step = 1; step < mesh_.ranks(); step++) {
    const int rank = (self() + step) % mesh_.ranks();
    const auto r = static_cast<size_t>(rank);
    while (resultSent_[r] < reduced_) {
      // Whole messages of kResultBytes, however far the reduction has come: the receiver posts its receives
      // by the same sizes.
      const size_t bytes = std::min(kResultBytes, own().bytes - resultSent_[r]);
      if (resultSent_[r] + bytes > reduced_) break;
      const size_t before = flights_.size();
      if (!sendPiece(rank, from + resultSent_[r], bytes, memory->sending[r], 2 + 2 * slot_)) return false;
      if (flights_.size() == before) break;
      resultSent_[r] += bytes;
    }
  }
  return true;
}

// The receives of the results are posted at once for every rank, as far as the comms take them.
bool Exchange::postResultReceives() {
  if (!plan_.distributes) return true;
  const auto* memory = static_cast<const PeersMemory*>(operation_.receiveMemory);
  for (int rank = 0; rank < mesh_.ranks(); rank++) {
    const auto r = static_cast<size_t>(rank);
    const Part& part = plan_.parts[r];
    if (rank == self()) continue;
    while (resultAsked_[r] < part.bytes) {
      const Pipe& pipe = *mesh_.pipe(rank);
      const size_t bytes = std::min(kResultBytes, part.bytes - resultAsked_[r]);
      auto* to = static_cast<std::byte*>(operation_.receive) + part.offset + resultAsked_[r];
      const core::Posted posted =
          pipe.receiving().irecvOne(to, bytes, 2 + 2 * slot_, memory->receiving[r], nullptr);
      if (!posted.ok) return fail(rank, pipe.receiving().error().message());
      if (!posted.request) refused_ = true;
      if (!posted.request) break;
      flights_.push_back({posted.request, bytes, rank, false});
      resultAsked_[r] += bytes;
    }
  }
  return true;
}

// Tests the oldest flight first and stops at the first that is not done: the operation needs all of them, and
// each test polls the network.
bool Exchange::testFlights() {
  while (!flights_.empty()) {
    const Flight& flight = flights_.front();
    int size = 0;
    const core::Tested tested = core::test(flight.request, &size);
    const Pipe& pipe = *mesh_.pipe(flight.rank);
    if (!tested.ok)
      return fail(flight.rank,
                  flight.sends ? pipe.sending().error().message() : pipe.receiving().error().message());
    if (!tested.done) return true;
    if (!flight.sends && static_cast<size_t>(size) != flight.bytes)
      return fail(flight.rank,
                  format("it sent %d bytes where %zu were expected: the ranks disagree about the operation",
                         size, flight.bytes));
    flights_.pop_front();
  }
  return true;
}

}  // namespace weft::coll
