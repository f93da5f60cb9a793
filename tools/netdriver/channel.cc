// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/channel.h"

namespace weft::netdriver {

namespace {

std::string aboutTag(int tag, const char* direction) {
  return std::string(direction) + " rank " + std::to_string(tag);
}

}  // namespace

Result<std::unique_ptr<SendChannel>> SendChannel::create(Comm comm, const ChannelShape& shape) {
  return create(std::make_shared<Comm>(std::move(comm)), shape);
}

Result<std::unique_ptr<SendChannel>> SendChannel::create(std::shared_ptr<Comm> comm,
                                                         const ChannelShape& shape) {
  auto channel = std::make_unique<SendChannel>(Key{});
  channel->shape_ = shape;
  channel->comm_ = std::move(comm);
  TRY(channel->buffer_, HostBuffer::create(shape.slotBytes * shape.slots));
  channel->buffer_.populate(0, channel->buffer_.size());
  TRY(channel->registration_, Registration::create(*channel->comm_, channel->buffer_.span()));
  channel->lengths_.resize(shape.slots);
  channel->steps_.assign(shape.slots, {nullptr, channel.get()});
  channel->requests_.resize(shape.slots);
  return channel;
}

std::byte* SendChannel::freeSlot() {
  if (filled_ - done_ == shape_.slots) return nullptr;
  return buffer_.data() + slotOf(filled_) * shape_.slotBytes;
}

void SendChannel::commit(size_t bytes) {
  lengths_[slotOf(filled_)] = bytes;
  ++filled_;
}

Status SendChannel::progress(bool* moved) {
  if (posted_ < filled_) TRY(postNext(moved));
  if (done_ < posted_) TRY(testOldest(moved));
  return {};
}

Status SendChannel::postNext(bool* moved) {
  const size_t slot = slotOf(posted_);
  SendArgs args;
  args.data = buffer_.data() + slot * shape_.slotBytes;
  args.size = lengths_[slot];
  args.tag = shape_.tag;
  args.mhandle = registration_.mhandle();
  args.phandle = &steps_[slot];
  const ncclResult_t result = comm_->net().isend(comm_->raw(), args, &requests_[slot]);
  if (result != ncclSuccess) [[unlikely]]
    return check(result, Call::isend, aboutTag(shape_.tag, "a send of"));
  if (requests_[slot] == nullptr) return {};
  ++posted_;
  *moved = true;
  return {};
}

Status SendChannel::testOldest(bool* moved) {
  int done = 0;
  int size = 0;
  const ncclResult_t result = comm_->net().test(requests_[slotOf(done_)], &done, &size);
  if (result != ncclSuccess) [[unlikely]]
    return check(result, Call::test, aboutTag(shape_.tag, "a send of"));
  if (done == 0) return {};
  ++done_;
  *moved = true;
  return {};
}

Result<std::unique_ptr<RecvChannel>> RecvChannel::create(Comm comm, const ChannelShape& shape) {
  auto channel = std::make_unique<RecvChannel>(Key{});
  const auto members = static_cast<size_t>(shape.members);
  channel->shape_ = shape;
  channel->comm_ = std::move(comm);
  TRY(channel->buffer_, HostBuffer::create(shape.slotBytes * shape.slots * members));
  channel->buffer_.populate(0, channel->buffer_.size());
  TRY(channel->registration_, Registration::create(channel->comm_, channel->buffer_.span()));
  channel->members_.resize(members);
  for (Member& member : channel->members_) {
    member.lengths.resize(shape.slots);
    member.steps.assign(shape.slots, {nullptr, channel.get()});
  }
  channel->groups_.resize(shape.slots * members);
  return channel;
}

std::byte* RecvChannel::slotOf(size_t member, uint64_t message) const {
  return buffer_.data() +
         (member * shape_.slots + static_cast<size_t>(message % shape_.slots)) * shape_.slotBytes;
}

std::span<const std::byte> RecvChannel::message(size_t member) const {
  const Member& from = members_[member];
  return {slotOf(member, from.released), from.lengths[static_cast<size_t>(from.released % shape_.slots)]};
}

bool RecvChannel::idle() const {
  for (const Member& member : members_)
    if (member.released != member.expected) return false;
  return true;
}

Status RecvChannel::progress(bool* moved) {
  if (const uint32_t members = membersToPost(); members != 0) TRY(post(members, moved));
  if (done_ < posted_) TRY(testOldest(moved));
  return {};
}

// Those that have something to come. While one of them has no free slot the group waits for it, as NCCL's
// does.
uint32_t RecvChannel::membersToPost() const {
  uint32_t found = 0;
  for (size_t m = 0; m < members_.size(); ++m) {
    const Member& member = members_[m];
    if (member.posted == member.expected) continue;
    if (member.posted - member.released == shape_.slots) return 0;
    found |= uint32_t{1} << m;
  }
  return found;
}

Status RecvChannel::post(uint32_t members, bool* moved) {
  RecvArgs args;
  args.n = 0;
  for (size_t m = 0; m < members_.size(); ++m) {
    if ((members >> m & 1) == 0) continue;
    const auto at = static_cast<size_t>(args.n++);
    args.data[at] = slotOf(m, members_[m].posted);
    args.sizes[at] = shape_.slotBytes;
    args.tags[at] = shape_.tag + static_cast<int>(m);
    args.mhandles[at] = registration_.mhandle();
    args.phandles[at] = &members_[m].steps[static_cast<size_t>(members_[m].posted % shape_.slots)];
  }
  Group& next = group(posted_);
  next.members = members;
  const ncclResult_t result = comm_.net().irecv(comm_.raw(), args, &next.request);
  if (result != ncclSuccess) [[unlikely]]
    return check(result, Call::irecv, aboutTag(shape_.tag, "a receive from"));
  if (next.request == nullptr) return {};
  for (size_t m = 0; m < members_.size(); ++m) members_[m].posted += members >> m & 1;
  ++posted_;
  received_ += static_cast<uint64_t>(args.n);
  *moved = true;
  return {};
}

Status RecvChannel::testOldest(bool* moved) {
  const Group& oldest = group(done_);
  int done = 0;
  std::array<int, kMaxGroup> sizes{};
  const ncclResult_t result = comm_.net().test(oldest.request, &done, sizes.data());
  if (result != ncclSuccess) [[unlikely]]
    return check(result, Call::test, aboutTag(shape_.tag, "a receive from"));
  if (done == 0) return {};
  TRY(complete(oldest, sizes));
  ++done_;
  *moved = true;
  return {};
}

Status RecvChannel::complete(const Group& group, std::span<const int> sizes) {
  size_t at = 0;
  for (size_t m = 0; m < members_.size(); ++m) {
    if ((group.members >> m & 1) == 0) continue;
    const int size = sizes[at++];
    if (size < 0 || static_cast<size_t>(size) > shape_.slotBytes)
      return Error(Code::internal, "test",
                   "a size of " + std::to_string(size) + " bytes, more than was posted");
    Member& member = members_[m];
    member.lengths[static_cast<size_t>(member.done++ % shape_.slots)] = static_cast<size_t>(size);
  }
  return {};
}

}  // namespace weft::netdriver
