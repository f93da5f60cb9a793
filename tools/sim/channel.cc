// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/sim/channel.h"

#include <utility>

namespace weft::sim {

namespace {

MemoryDesc describe(const ChannelShape& shape) {
  MemoryDesc desc;
  desc.address = shape.memory;
  desc.length = shape.slotBytes;
  return desc;
}

core::Tested test(core::Request* request, int* bytes, Effort* effort) {
  effort->calls++;
  const core::Tested tested = core::test(request, bytes);
  if (tested.ok && !tested.done) effort->inVain++;
  return tested;
}

}  // namespace

Outlet::Outlet(Key, std::unique_ptr<core::SendComm> comm, const ChannelShape& shape,
               core::MemoryHandle* memory)
    : shape_(shape), comm_(std::move(comm)), memory_(memory), bytes_(shape.slots), requests_(shape.slots) {}

Outlet::~Outlet() {
  (void)comm_->deregisterMemory(memory_);
}

Result<std::unique_ptr<Outlet>> Outlet::create(std::unique_ptr<core::SendComm> comm,
                                               const ChannelShape& shape) {
  TRY(core::MemoryHandle* const memory, comm->registerMemory(describe(shape)));
  return std::make_unique<Outlet>(Key(), std::move(comm), shape, memory);
}

void Outlet::commit(size_t bytes) {
  bytes_[filled_++ % shape_.slots] = bytes;
}

Status Outlet::post(Effort* effort) {
  while (posted_ < filled_) {
    const size_t slot = posted_ % shape_.slots;
    if (prepared_ == posted_) {
      prepared_++;
      effort->prepareMessage();
    }
    effort->calls++;
    const core::Posted posted = comm_->isend(shape_.memory, bytes_[slot], 0, memory_, nullptr);
    if (!posted.ok) return comm_->error();
    if (!posted.request) return {};
    requests_[slot] = posted.request;
    posted_++;
    effort->sent++;
    effort->bytesSent += bytes_[slot];
    effort->moved = true;
  }
  return {};
}

Status Outlet::progress(Effort* effort) {
  TRY(post(effort));
  while (done_ < posted_) {
    const core::Tested tested = test(requests_[done_ % shape_.slots], nullptr, effort);
    if (!tested.ok) return comm_->error();
    if (!tested.done) return {};
    done_++;
    effort->moved = true;
  }
  return {};
}

Inlet::Inlet(Key, std::unique_ptr<core::RecvComm> comm, const ChannelShape& shape, core::MemoryHandle* memory)
    : shape_(shape), comm_(std::move(comm)), memory_(memory), bytes_(shape.slots), requests_(shape.slots) {}

Inlet::~Inlet() {
  (void)comm_->deregisterMemory(memory_);
}

Result<std::unique_ptr<Inlet>> Inlet::create(std::unique_ptr<core::RecvComm> comm,
                                             const ChannelShape& shape) {
  TRY(core::MemoryHandle* const memory, comm->registerMemory(describe(shape)));
  return std::make_unique<Inlet>(Key(), std::move(comm), shape, memory);
}

Status Inlet::progress(Effort* effort) {
  while (posted_ < expected_ && posted_ - released_ < shape_.slots) {
    effort->calls++;
    const core::Posted posted = comm_->irecvOne(shape_.memory, shape_.slotBytes, 0, memory_, nullptr);
    if (!posted.ok) return comm_->error();
    if (!posted.request) break;
    requests_[posted_++ % shape_.slots] = posted.request;
    effort->moved = true;
  }
  while (done_ < posted_) {
    const size_t slot = done_ % shape_.slots;
    int bytes = 0;
    const core::Tested tested = test(requests_[slot], &bytes, effort);
    if (!tested.ok) return comm_->error();
    if (!tested.done) return {};
    bytes_[slot] = static_cast<size_t>(bytes);
    done_++;
    effort->received++;
    effort->arrivals.push_back(bytes_[slot]);
    effort->moved = true;
  }
  return {};
}

}  // namespace weft::sim
