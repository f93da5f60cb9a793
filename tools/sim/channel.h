// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/core/comm_api.h"
#include "tools/sim/effort.h"

// The two ends of a connection as NCCL's proxy drives them: slots that are used round robin, one message a
// slot. A message that cannot be posted now is tried again, requests are tested oldest first. All slots of
// all ranks are one piece of memory, as nobody looks at its bytes. Used by one thread.
namespace weft::sim {

struct ChannelShape {
  size_t slotBytes = size_t{1} << 20;
  size_t slots = 4;
  std::byte* memory = nullptr;  // of slotBytes
};

class Outlet {
  struct Key {};

 public:
  Outlet(Key, std::unique_ptr<core::SendComm> comm, const ChannelShape& shape, core::MemoryHandle* memory);
  // Registers the memory.
  static Result<std::unique_ptr<Outlet>> create(std::unique_ptr<core::SendComm> comm,
                                                const ChannelShape& shape);
  ~Outlet();
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  bool hasSlot() const { return filled_ - done_ < shape_.slots; }
  void commit(size_t bytes);  // the next slot has a message of so many
  bool idle() const { return done_ == filled_; }
  Status progress(Effort* effort);

 private:
  Status post(Effort* effort);

  const ChannelShape shape_;
  std::unique_ptr<core::SendComm> comm_;
  core::MemoryHandle* memory_;
  std::vector<size_t> bytes_;             // by slot
  std::vector<core::Request*> requests_;  // likewise
  uint64_t filled_ = 0;
  uint64_t prepared_ = 0;  // its time was taken
  uint64_t posted_ = 0;
  uint64_t done_ = 0;
};

class Inlet {
  struct Key {};

 public:
  Inlet(Key, std::unique_ptr<core::RecvComm> comm, const ChannelShape& shape, core::MemoryHandle* memory);
  static Result<std::unique_ptr<Inlet>> create(std::unique_ptr<core::RecvComm> comm,
                                               const ChannelShape& shape);
  ~Inlet();
  Inlet(const Inlet&) = delete;
  Inlet& operator=(const Inlet&) = delete;

  void expect(uint64_t messages) { expected_ += messages; }
  bool ready() const { return released_ < done_; }
  size_t size() const { return bytes_[released_ % shape_.slots]; }  // of the oldest that is ready
  void release() { released_++; }
  bool idle() const { return released_ == expected_; }
  Status progress(Effort* effort);

 private:
  const ChannelShape shape_;
  std::unique_ptr<core::RecvComm> comm_;
  core::MemoryHandle* memory_;
  std::vector<size_t> bytes_;
  std::vector<core::Request*> requests_;
  uint64_t expected_ = 0;
  uint64_t posted_ = 0;
  uint64_t done_ = 0;
  uint64_t released_ = 0;
};

}  // namespace weft::sim
