// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "providers/fault/directory.h"
#include "providers/fault/queue.h"
#include "weft/transport.h"

// The Endpoint decorator: a lane and what the rules did to it so far. Used by its Queue's owner thread.
namespace weft::fault {

// The Queue reads and writes these.
struct LaneFaults {
  bool dead = false;       // `broken` was reported, every further work fails
  bool silent = false;     // works vanish
  uint32_t refusals = 0;   // posts still to refuse
  uint32_t doomed = 0;     // works still to collect before the lane dies
  uint32_t doomPolls = 0;  // or polls, whichever ends first
  bool late = false;       // works that fail then land afterwards
  uint32_t latePolls = 0;  // this many polls later
  bool retiring = false;   // the user asked
  bool innerRetiring = false;
  bool innerRetired = false;
  int fenceError = 0;    // of that: nonzero where the inner lane could not be fenced
  std::string fenceWhy;  // in the inner Queue's words
};

class FaultEndpoint : public Endpoint {
 public:
  FaultEndpoint(FaultQueue& queue, std::unique_ptr<Endpoint> inner, Where where);
  ~FaultEndpoint() override;

  std::span<const std::byte> address() const override { return inner_->address(); }
  Status connect(std::span<const std::byte> peerAddress) override;
  void peerConnected() override { inner_->peerConnected(); }
  Result<RemoteMemory> import(std::span<const std::byte> blob) override { return inner_->import(blob); }
  size_t post(std::span<const Work> works) override;
  void retire() override;
  bool cut() override { return inner_->cut(); }

  // For its Queue.
  Endpoint* inner() { return inner_.get(); }
  const Where& where() const { return where_; }
  LaneFaults& faults() { return faults_; }
  uint64_t peerPolls() const { return peerPolls_ ? peerPolls_->load(std::memory_order_relaxed) : 0; }
  bool peerIsLocal() const { return peerPolls_ != nullptr; }
  void retireInner();

 private:
  FaultQueue& queue_;
  std::unique_ptr<Endpoint> inner_;
  const Where where_;
  LaneFaults faults_;
  PollCount peerPolls_;  // of the peer's Queue, when it is a fault Queue of this process
};

}  // namespace weft::fault
