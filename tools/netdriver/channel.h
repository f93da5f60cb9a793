// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <vector>

#include "tools/netdriver/comm.h"

// The two directions of a connection as NCCL's proxy drives them: a registered buffer cut into slots that are
// used round robin, one message a slot; what cannot be posted now is tried again, requests are tested oldest
// first. A receiving channel can have several members: messages of several senders that come over one comm,
// each with a tag and slots of its own, received in groups as NCCL's shared point-to-point comms do. Lengths
// in bytes. Used by one thread.
namespace weft::netdriver {

struct ChannelShape {
  size_t slotBytes = size_t{1} << 20;
  size_t slots = 4;
  int tag = 0;      // NCCL's: the rank of the sender
  int members = 1;  // of a receiving channel, at most kMaxGroup; member m has the tag `tag` + m
};

class SendChannel {
  struct Key {};

 public:
  explicit SendChannel(Key) {}
  static Result<std::unique_ptr<SendChannel>> create(Comm comm, const ChannelShape& shape);
  // Several channels can send over one comm; the last of them closes it.
  static Result<std::unique_ptr<SendChannel>> create(std::shared_ptr<Comm> comm, const ChannelShape& shape);

  // Where the next message is written, or nullptr while every slot is in use.
  std::byte* freeSlot();
  // Hands the slot from freeSlot over to be sent.
  void commit(size_t bytes);
  bool idle() const { return done_ == filled_; }
  uint64_t messages() const { return posted_; }

  // Posts and tests what it can; sets *moved when anything happened.
  Status progress(bool* moved);

 private:
  Status postNext(bool* moved);
  Status testOldest(bool* moved);
  size_t slotOf(uint64_t message) const { return static_cast<size_t>(message % shape_.slots); }

  ChannelShape shape_;
  std::shared_ptr<Comm> comm_;
  HostBuffer buffer_;
  Registration registration_;
  std::vector<size_t> lengths_;
  std::vector<StepRecord> steps_;
  std::vector<void*> requests_;
  uint64_t filled_ = 0;  // messages handed over, posted and done so far
  uint64_t posted_ = 0;
  uint64_t done_ = 0;
};

class RecvChannel {
  struct Key {};

 public:
  explicit RecvChannel(Key) {}
  static Result<std::unique_ptr<RecvChannel>> create(Comm comm, const ChannelShape& shape);

  // That many more messages of a member are coming.
  void expect(uint64_t messages, size_t member = 0) { members_[member].expected += messages; }
  // The oldest message of a member that arrived and was not released yet.
  bool ready(size_t member = 0) const { return members_[member].released < members_[member].done; }
  std::span<const std::byte> message(size_t member = 0) const;
  void release(size_t member = 0) { ++members_[member].released; }
  // Every message that was expected has been released.
  bool idle() const;
  uint64_t messages() const { return received_; }

  Status progress(bool* moved);

 private:
  // Counts of messages.
  struct Member {
    uint64_t expected = 0;
    uint64_t posted = 0;
    uint64_t done = 0;
    uint64_t released = 0;
    std::vector<size_t> lengths;  // by slot
    std::vector<StepRecord> steps;
  };
  // A receive, of the members whose bits are set.
  struct Group {
    void* request = nullptr;
    uint32_t members = 0;
  };

  uint32_t membersToPost() const;
  Status post(uint32_t members, bool* moved);
  Status testOldest(bool* moved);
  Status complete(const Group& group, std::span<const int> sizes);
  std::byte* slotOf(size_t member, uint64_t message) const;
  Group& group(uint64_t number) { return groups_[static_cast<size_t>(number % groups_.size())]; }

  ChannelShape shape_;
  Comm comm_;
  HostBuffer buffer_;
  Registration registration_;
  std::vector<Member> members_;
  std::vector<Group> groups_;
  uint64_t posted_ = 0;  // groups
  uint64_t done_ = 0;
  uint64_t received_ = 0;  // messages
};

}  // namespace weft::netdriver
