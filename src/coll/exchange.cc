// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/exchange.h"

#include <cstring>

#include "src/coll/kernels.h"

// The steps of an exchange, in the order in which progress() takes them.
namespace weft::coll {

void Exchange::begin(uint64_t turn, const Operation& operation) {
  const auto members = static_cast<size_t>(members_.count());
  operation_ = operation;
  contributed_.assign(members, 0);
  resultSent_.assign(members, 0);
  resultAsked_.assign(members, 0);
  reduced_ = 0;
  done_ = false;
  const bool folds = plan_.reduces && members > 1;
  beginFolds(turn, folds ? Span{plan_.own.offset, plan_.own.offset + plan_.own.bytes} : Span{});
  if (!folds) takeOwnPart();
}

// Nothing has to be reduced: our part is final as it is, so it is copied to the place of the result unless it
// is there already.
void Exchange::takeOwnPart() {
  reduced_ = plan_.own.bytes;
  if (reduced_ == 0) return;
  const auto* from = static_cast<const std::byte*>(operation_.send) + plan_.own.offset;
  auto* to = static_cast<std::byte*>(operation_.receive) + plan_.ownAt;
  if (operation_.receive && to != from) std::memmove(to, from, reduced_);
}

// Tests come first, so that requests are free again when the posts need them.
Exchange::Step Exchange::progress(bool oldest, bool mayPost) {
  refused_ = !mayPost;
  bool fine = flights_.test(blocks_);
  if (fine && mayPost) fine = postContributions() && openFolds(oldest) && postFolds() && postResultReceives();
  fine = fine && advanceFolds();
  if (fine && mayPost) fine = postResults();
  if (!fine) return Step::failed;
  done_ = finished();
  return done_ ? Step::done : Step::going;
}

bool Exchange::isPosted(const std::vector<Part>& parts, const std::vector<size_t>& sent) const {
  for (size_t m = 0; m < sent.size(); m++)
    if (members_.pipes[m] && sent[m] < parts[m].bytes) return false;
  return true;
}

bool Exchange::finished() const {
  if (!flights_.empty() || !foldsAreDone() || reduced_ < plan_.own.bytes) return false;
  if (!isPosted(plan_.give, contributed_) || !isPosted(plan_.take, resultAsked_)) return false;
  if (!plan_.distributes) return true;
  for (size_t m = 0; m < resultSent_.size(); m++)
    if (members_.pipes[m] && resultSent_[m] < plan_.own.bytes) return false;
  return true;
}

core::MemoryHandle* Exchange::handleOf(const GroupMemory* memory, int member, bool sends) {
  const auto* known = static_cast<const ComMemory*>(memory);
  if (!known) return nullptr;
  return (sends ? known->sending : known->receiving)[static_cast<size_t>(member)];
}

bool Exchange::noteResult(Flights::Post came, bool* posted) {
  *posted = came == Flights::Post::posted;
  if (came == Flights::Post::notNow) refused_ = true;
  return came != Flights::Post::failed;
}

// Posts what is left of each member's part, as far as its comm takes it now. The member after this one is the
// first, so that not all ranks send to the same one at a time.
bool Exchange::postAll(const std::vector<Part>& parts, std::vector<size_t>* sent, size_t most, int tag,
                       bool (Exchange::*one)(int, size_t, size_t, int, bool*)) {
  for (int step = 1; step <= members_.count(); step++) {
    const int member = (members_.self + step) % members_.count();
    const auto m = static_cast<size_t>(member);
    if (!members_.pipe(member)) continue;
    bool posted = true;
    while (posted && (*sent)[m] < parts[m].bytes) {
      const size_t bytes = parts[m].next((*sent)[m], most);
      if (!(this->*one)(member, parts[m].offset + (*sent)[m], bytes, tag, &posted)) return false;
      if (posted) (*sent)[m] += bytes;
    }
  }
  return true;
}

bool Exchange::contribute(int member, size_t at, size_t bytes, int tag, bool* posted) {
  const auto* from = static_cast<const std::byte*>(operation_.send) + at;
  return noteResult(flights_.send(member, from, bytes, handleOf(operation_.sendMemory, member, true), tag),
                    posted);
}

bool Exchange::ask(int member, size_t at, size_t bytes, int tag, bool* posted) {
  auto* to = static_cast<std::byte*>(operation_.receive) + at;
  return noteResult(
      flights_.receive(member, to, bytes, handleOf(operation_.receiveMemory, member, false), tag), posted);
}

bool Exchange::postContributions() {
  return postAll(plan_.give, &contributed_, blocks_.options().pieceBytes, contributionTag(turn_),
                 &Exchange::contribute);
}

// The receives of the results are posted at once for every member, as far as the comms take them.
bool Exchange::postResultReceives() {
  return postAll(plan_.take, &resultAsked_, resultBytes_, resultTag(turn_), &Exchange::ask);
}

// In one step every rank sends all of its vector to all others, and the result may be written over it: first
// it has to have left. In two steps a rank writes in place only what it does not send, which is its own part,
// and others' results come when they have what they reduced them of.
bool Exchange::mayCombine() const {
  return !plan_.whole || (flights_.empty() && isPosted(plan_.give, contributed_));
}

// Folds the pieces in the order of the ranks, with ours in its place. So every rank's part has the same bits
// whatever came first.
bool Exchange::combine(const Folding& folding) {
  std::vector<const void*> inputs;
  for (int member = 0; member < members_.count(); member++)
    inputs.push_back(members_.pipe(member)
                         ? blocks_.piece(*folding.block, member)
                         : static_cast<const std::byte*>(operation_.send) + folding.piece.begin);
  const size_t at = folding.piece.begin - plan_.own.offset;
  reduced_ = at + folding.piece.bytes();
  return reduce(operation_.type, operation_.op, inputs,
                static_cast<std::byte*>(operation_.receive) + plan_.ownAt + at, folding.piece.bytes());
}

// The results of our part go out while later pieces are still being reduced, in whole messages however far
// the reduction has come: the receiver posts its receives by the same sizes.
bool Exchange::postResults() {
  if (!plan_.distributes) return true;
  const GroupMemory* memory = plan_.reduces ? operation_.receiveMemory : operation_.sendMemory;
  const auto* from = plan_.reduces ? static_cast<const std::byte*>(operation_.receive) + plan_.ownAt
                                   : static_cast<const std::byte*>(operation_.send);
  for (int step = 1; step < members_.count(); step++) {
    const int member = (members_.self + step) % members_.count();
    size_t& sent = resultSent_[static_cast<size_t>(member)];
    bool posted = true;
    while (posted && sent < plan_.own.bytes) {
      const size_t bytes = plan_.own.next(sent, resultBytes_);
      if (sent + bytes > reduced_) break;
      const auto came =
          flights_.send(member, from + sent, bytes, handleOf(memory, member, true), resultTag(turn_));
      if (!noteResult(came, &posted)) return false;
      if (posted) sent += bytes;
    }
  }
  return true;
}

}  // namespace weft::coll
