// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/agg/child.h"

// The ring of receives of a child.
namespace weft::agg {

void InboundRing::open(const Options& options) {
  options_ = options;
  requests_.assign(options.slots, nullptr);
  sizes_.assign(options.slots, 0);
}

// Receives are tested in the order in which they were posted, so a late one holds up those behind it. The
// reduction takes them in that order anyway.
bool InboundRing::progress(uint64_t limit, bool* moved) {
  while (posted_ < limit && posted_ < arrived_ + options_.slots) {
    const core::Posted posted =
        options_.comm->irecvOne(slot(posted_), options_.bytes, options_.tag, options_.handle, nullptr);
    if (!posted.ok) return false;
    if (!posted.request) break;
    requests_[posted_ % options_.slots] = posted.request;
    posted_++;
    *moved = true;
  }
  while (arrived_ < posted_) {
    int size = 0;
    const core::Tested tested = core::test(requests_[arrived_ % options_.slots], &size);
    if (!tested.ok) return false;
    if (!tested.done) return true;
    sizes_[arrived_ % options_.slots] = static_cast<size_t>(size);
    arrived_++;
    *moved = true;
  }
  return true;
}

}  // namespace weft::agg
