// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/address_book.h"

#include <algorithm>

#include "providers/ofi/address.h"

// Inserting and forgetting peers' addresses in the order that libfabric needs.
namespace weft::ofi {

namespace {

std::string keyOf(const Bytes& name) {
  return std::string(reinterpret_cast<const char*>(name.data()), name.size());
}

constexpr size_t kMostPeers = size_t{1} << 20;  // beyond it an address is no index we keep

}  // namespace

Result<std::unique_ptr<AddressBook>> AddressBook::open(const Domain& domain, uint32_t format, size_t kept) {
  auto book = std::make_unique<AddressBook>();
  book->library_ = &domain.library();
  book->kept_ = kept;
  book->format_ = format;
  fi_av_attr attributes{};
  attributes.type = FI_AV_TABLE;
  fid_av* raw = nullptr;
  const int code = fi_av_open(domain.get(), &attributes, &raw, nullptr);
  if (code != 0) return fabricError(domain.library(), "opening an address vector", "Queue", code);
  book->av_.reset(raw);
  return book;
}

// An address that is kept without need gives way when the card has no room for a new one.
int AddressBook::add(const Bytes& name, fi_addr_t* address) {
  int count = fi_av_insert(av_.get(), name.data(), 1, address, 0, nullptr);
  if (count != 1 && !unused_.empty()) {
    while (forgetUnused(0) > 0) continue;  // each may have been the successor of others
    count = fi_av_insert(av_.get(), name.data(), 1, address, 0, nullptr);
  }
  return count;
}

Error AddressBook::refused(int count, const std::string& who) const {
  if (count < 0) return fabricError(*library_, "inserting a peer's address", who, count);
  return Error(Code::resources, "inserting a peer's address",
               who +
                   ": the provider did not take it. EFA cards have a number of address handles, one for each "
                   "card of each peer: spread the job over fewer hosts, or end others on this host; "
                   "FI_LOG_LEVEL=warn shows the provider's words");
}

Result<fi_addr_t> AddressBook::insert(const Bytes& name, OfiEndpoint* lane, const std::string& who) {
  const std::string key = keyOf(name);
  auto found = peers_.find(key);
  if (found == peers_.end()) {
    Peer added;
    const int count = add(name, &added.address);
    if (count != 1) return refused(count, who);
    added.age = ++lastAge_;
    found = peers_.emplace(key, std::move(added)).first;
  } else if (found->second.lanes.empty()) {
    unused_.erase(std::find(unused_.begin(), unused_.end(), key));
  }
  Peer& peer = found->second;
  peer.lanes.push_back(lane);
  reindex(peer);
  return peer.address;
}

void AddressBook::remove(const Bytes& name, OfiEndpoint* lane) {
  const auto found = peers_.find(keyOf(name));
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  const auto at = std::find(peer.lanes.begin(), peer.lanes.end(), lane);
  if (at == peer.lanes.end()) return;
  peer.lanes.erase(at);
  reindex(peer);
  if (!peer.lanes.empty()) return;
  unused_.push_back(found->first);
  (void)forgetUnused(kept_);
}

std::string_view AddressBook::placeOf(std::string_view name) const {
  return name.substr(0, placeBytes(format_, name.size()));
}

// True where a newer address has the same place.
bool AddressBook::hasSuccessor(const std::string& name) const {
  const std::string_view place = placeOf(name);
  const uint64_t age = peers_.at(name).age;
  for (auto peer = peers_.lower_bound(std::string(place)); peer != peers_.end(); ++peer) {
    if (placeOf(peer->first) != place) return false;
    if (peer->second.age > age) return true;
  }
  return false;
}

size_t AddressBook::forgetUnused(size_t left) {
  const size_t before = unused_.size();
  for (auto name = unused_.begin(); name != unused_.end() && unused_.size() > left;) {
    if (hasSuccessor(*name)) {
      ++name;
      continue;
    }
    forget(peers_.at(*name).address);
    peers_.erase(*name);
    name = unused_.erase(name);
  }
  return before - unused_.size();
}

void AddressBook::forget(fi_addr_t address) {
  (void)fi_av_remove(av_.get(), &address, 1, 0);
}

// Closing the address vector makes the provider forget everything in its own order (address_book.h).
AddressBook::~AddressBook() = default;

void AddressBook::reindex(const Peer& peer) {
  if (peer.address >= kMostPeers) return;
  if (peer.address >= lanes_.size()) lanes_.resize(peer.address + 1, nullptr);
  lanes_[peer.address] = peer.lanes.size() == 1 ? peer.lanes.front() : nullptr;
}

}  // namespace weft::ofi
