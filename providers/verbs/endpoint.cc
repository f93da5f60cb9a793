// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/endpoint.h"

#include <algorithm>

#include "providers/verbs/memory.h"
#include "providers/verbs/words.h"
#include "src/base/log.h"
#include "src/base/reserve.h"

namespace weft::verbs {

namespace {

// What fits one packet of the largest MTU is not worth a path of its own.
constexpr size_t kSmallBytes = 4096;

// Of the first queue pair; then each has room for the three requests of a write that goes apart.
constexpr uint32_t kLeastApartDepth = 8;

}  // namespace

VerbsEndpoint::VerbsEndpoint(VerbsQueue& queue) : queue_(queue) {}

Result<std::unique_ptr<Endpoint>> VerbsEndpoint::create(VerbsQueue& queue) {
  auto endpoint = std::make_unique<VerbsEndpoint>(queue);
  TRY(endpoint->start());
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

// Queue pairs after the first have half its slots: theirs are large works only, and memory counts.
Status VerbsEndpoint::start() {
  const uint32_t depth = queue_.laneDepth();
  const uint32_t furtherDepth = std::max((depth + 1) / 2, 2u) - 1;
  for (int i = 0; i < queue_.settings().queuePairs; i++) {
    TRY(auto made, SendQueue::create(queue_, *this, i == 0 ? depth : furtherDepth));
    const LaneAddress& address = made->pair()->address();
    if (i == 0)
      own_ = address;
    else
      own_.pairs.push_back(address.first());
    sendQueues_.push_back(std::move(made));
  }
  own_.takesApart = queue_.settings().apart && depth >= kLeastApartDepth;
  address_ = encode(own_);
  return {};
}

VerbsEndpoint::~VerbsEndpoint() {
  const MustNotFail closing;
  sendQueues_.clear();
  queue_.forget(this);
}

Result<RemoteMemory> VerbsEndpoint::import(std::span<const std::byte> blob) {
  return decodeMemory(blob);
}

size_t VerbsEndpoint::post(std::span<const Work> works) {
  size_t taken = 0;
  while (taken < works.size() && state_ == State::ready) {
    SendQueue* to = choose(works[taken]);
    if (!to) break;
    int refusal = 0;
    const size_t accepted = to->post(works.subspan(taken, together(works.subspan(taken))), &refusal);
    taken += accepted;
    if (refusal != 0) [[unlikely]]
      rejected(works[taken++], refusal);
    else if (accepted == 0)
      break;
  }
  return taken;
}

// The next one in turn that has room; null: none has.
SendQueue* VerbsEndpoint::choose(const Work& work) {
  if (sendQueues_.size() == 1 || work.length <= kSmallBytes) return sendQueues_.front().get();
  for (size_t tried = 0; tried < sendQueues_.size(); tried++) {
    turn_ = turn_ + 1 < sendQueues_.size() ? turn_ + 1 : 0;
    if (sendQueues_[turn_]->roomFor(work)) return sendQueues_[turn_].get();
  }
  return nullptr;
}

// How many of them go over the queue pair that the first one goes over.
size_t VerbsEndpoint::together(std::span<const Work> works) const {
  if (sendQueues_.size() == 1) return works.size();
  if (works.front().length > kSmallBytes) return 1;
  const auto large =
      std::find_if(works.begin(), works.end(), [](const Work& work) { return work.length > kSmallBytes; });
  return static_cast<size_t>(large - works.begin());
}

// The driver would not even take it: the Work counts as taken, and as failed.
void VerbsEndpoint::rejected(const Work& work, int code) {
  Completion completion = about(CompletionKind::sent, code);
  completion.context = work.context;
  state_ = State::dead;
  firstFailure_ = verbsError("posting", queue_.device().info().name, code).message();
  queue_.report(completion, named("posting to", firstFailure_));
}

void VerbsEndpoint::lost(const std::string& why) {
  if (firstFailure_.empty()) firstFailure_ = why;
  if (state_ == State::ready) state_ = State::dead;
}

std::string VerbsEndpoint::named(const char* what, const std::string& why) const {
  return format("%s %s over verbs %s (%s): %s", what, peerText_.empty() ? "the peer" : peerText_.c_str(),
                queue_.device().info().name.c_str(), addressText(own_).c_str(), why.c_str());
}

}  // namespace weft::verbs
