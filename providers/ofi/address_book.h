// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "providers/ofi/domain.h"
#include "src/base/bytes.h"

// A Queue's address vector: each peer address once, however many lanes use it, and the way back from
// libfabric's number of a sender to our lane. An address whose last lane is gone may be kept for a while: the
// peer's end of that lane is fenced a moment later, by a write that a card takes only from whom it knows.
// Owned and used by the Queue's thread.
namespace weft::ofi {

class OfiEndpoint;

class AddressBook {
 public:
  static constexpr size_t kKept = 64;  // addresses; the oldest one goes first

  static Result<std::unique_ptr<AddressBook>> open(const Domain& domain, size_t kept);

  fid_av* get() const { return av_.get(); }

  // `who`: the peer and the card, for an error.
  Result<fi_addr_t> insert(const Bytes& name, OfiEndpoint* lane, const std::string& who);
  void remove(const Bytes& name, OfiEndpoint* lane);

  // The one lane to that peer; null when it is unknown or several lanes share the address.
  OfiEndpoint* laneFrom(fi_addr_t address) const {
    return address < lanes_.size() ? lanes_[address] : nullptr;
  }

 private:
  struct Peer {
    fi_addr_t address = FI_ADDR_UNSPEC;
    std::vector<OfiEndpoint*> lanes;
  };
  AddressBook() = default;
  int add(const Bytes& name, fi_addr_t* address);
  Error refused(int count, const std::string& who) const;
  void reindex(const Peer& peer);
  void forgetUnused(size_t left);

  const Library* library_ = nullptr;
  size_t kept_ = 0;
  FidPtr<fid_av> av_;
  std::map<std::string, Peer> peers_;  // by the bytes of their address
  std::deque<std::string> unused_;     // of those, without a lane; oldest first
  std::vector<OfiEndpoint*> lanes_;    // by fi_addr_t, which is a small index (FI_AV_TABLE)
};

}  // namespace weft::ofi
