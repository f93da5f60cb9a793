// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/fault/endpoint.h"

#include <cerrno>

namespace weft::fault {

FaultEndpoint::FaultEndpoint(FaultQueue& queue, std::unique_ptr<Endpoint> inner, Where where)
    : queue_(queue), inner_(std::move(inner)), where_(std::move(where)) {
  queue_.shared().directory->publish(inner_->address(), queue_.polls());
}

FaultEndpoint::~FaultEndpoint() {
  queue_.shared().directory->withdraw(inner_->address());
  inner_.reset();  // before the copies it may be sending from
  queue_.detach(*this);
}

Status FaultEndpoint::connect(std::span<const std::byte> peerAddress) {
  Shared& shared = queue_.shared();
  TRY(shared.call(FaultKind::connect, where_, "connecting a lane"));
  if (shared.hit(FaultKind::connectNever, where_)) return {};
  peerPolls_ = shared.directory->find(peerAddress);
  if (!shared.hit(FaultKind::connectRefused, where_)) return inner_->connect(peerAddress);
  faults_.dead = true;
  queue_.complete({.kind = CompletionKind::connected, .ok = false, .error = ECONNREFUSED, .source = this});
  return {};
}

size_t FaultEndpoint::post(std::span<const Work> works) {
  if (faults_.retiring) return 0;
  queue_.refresh();
  size_t n = 0;
  while (n < works.size() && queue_.submit(*this, works[n])) n++;
  queue_.pump();
  return n;
}

void FaultEndpoint::retireInner() {
  if (faults_.innerRetiring) return;
  faults_.innerRetiring = true;
  inner_->retire();
}

void FaultEndpoint::retire() {
  if (faults_.retiring) return;
  faults_.retiring = true;
  queue_.fence(*this);
}

}  // namespace weft::fault
