// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "providers/ofi/gate.h"
#include "providers/ofi/library.h"
#include "weft/transport.h"

// A libfabric domain with its fabric, and the memory registered in it. With software providers a Queue owns
// it, and every use goes through its gate; with hardware the Device owns it, without a gate. Only a Registry
// touches its memory, under the Registry's lock; any thread may call cardGone().
namespace weft::ofi {

class Domain {
 public:
  Domain() = default;
  // `info` must outlive the Domain.
  static Result<std::unique_ptr<Domain>> open(std::shared_ptr<const Library> library, fi_info& info,
                                              bool gated);

  struct Registered {
    uint64_t key = 0;
    void* descriptor = nullptr;  // for works; null where the Device has several Domains
  };
  // `id` names the registration here; `wantedKey` is the key for peers, unless the provider chooses its own.
  Result<Registered> registerMemory(uint64_t id, uint64_t wantedKey, const MemoryDesc& desc);
  // The card did not answer a registration.
  bool cardGone() const { return cardGone_.load(std::memory_order_relaxed); }
  void deregister(uint64_t id);
  void deregisterAll();

  Result<FidPtr<fid_eq>> openEventQueue();  // of the fabric; it has to be read by hand

  Gate* gate() const { return gate_.get(); }  // null: libfabric's own locks suffice
  fid_domain* get() const { return domain_.get(); }
  const Library& library() const { return *library_; }

 private:
  std::string name_;  // for errors
  std::atomic<bool> cardGone_{false};
  std::unique_ptr<Gate> gate_;
  std::shared_ptr<const Library> library_;
  FidPtr<fid_fabric> fabric_;
  FidPtr<fid_domain> domain_;
  std::unordered_map<uint64_t, FidPtr<fid_mr>> memory_;
};

// A result code of libfabric as an Error: "opening a domain on eth0: No such device".
Error fabricError(const Library& library, const char* operation, const std::string& object, int64_t code);

}  // namespace weft::ofi
