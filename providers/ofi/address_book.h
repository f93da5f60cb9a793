// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "providers/ofi/domain.h"
#include "src/base/bytes.h"

// A Queue's address vector: each peer address once, however many lanes use it, and the way back from
// libfabric's number of a sender to our lane. An address whose last lane is gone may be kept for a while. The
// peer's end of that lane is fenced a moment later by a write, and a card takes a write only from a sender
// that it knows.
//
// An EFA peer that closed its endpoint may open another one with the same queue pair number. libfabric (1.17
// and 2.1) knows senders by that number. Told to forget the older endpoint, it forgets the newer one: it
// drops the newer one's messages, and crashes when that one is to be forgotten too. So an address is kept as
// long as a newer one has its place. 1.17 also adds senders by itself, newer than any that we know;
// forgetting ours one by one at the end was seen to crash there, so the address vector is closed as it is.
// The Queue owns it; its thread uses it.
namespace weft::ofi {

class OfiEndpoint;

class AddressBook {
 public:
  static constexpr size_t kKept = 64;  // addresses without a lane; the oldest goes first

  AddressBook() = default;
  ~AddressBook();
  // `format` of the addresses: FI_ADDR_EFA, ...
  static Result<std::unique_ptr<AddressBook>> open(const Domain& domain, uint32_t format, size_t kept);

  fid_av* get() const { return av_.get(); }

  // `who`: the peer and the card, for the error.
  Result<fi_addr_t> insert(const Bytes& name, OfiEndpoint* lane, const std::string& who);
  void remove(const Bytes& name, OfiEndpoint* lane);

  // The only lane to that peer. Null: the peer is unknown, or several lanes share the address.
  OfiEndpoint* laneFrom(fi_addr_t address) const {
    return address < lanes_.size() ? lanes_[address] : nullptr;
  }

 private:
  struct Peer {
    fi_addr_t address = FI_ADDR_UNSPEC;
    uint64_t age = 0;  // the newer, the higher
    std::vector<OfiEndpoint*> lanes;
  };
  int add(const Bytes& name, fi_addr_t* address);
  Error refused(int count, const std::string& who) const;
  void reindex(const Peer& peer);
  std::string_view placeOf(std::string_view name) const;
  bool hasSuccessor(const std::string& name) const;
  size_t forgetUnused(size_t left);  // returns the number that it forgot
  void forget(fi_addr_t address);

  const Library* library_ = nullptr;
  size_t kept_ = 0;
  uint32_t format_ = 0;
  uint64_t lastAge_ = 0;
  FidPtr<fid_av> av_;
  std::map<std::string, Peer> peers_;  // by the bytes of their address
  std::deque<std::string> unused_;     // of peers_: those without a lane, oldest first
  std::vector<OfiEndpoint*> lanes_;    // by fi_addr_t, which is a small index (FI_AV_TABLE)
};

}  // namespace weft::ofi
