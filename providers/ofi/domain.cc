// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/domain.h"

#include "providers/common/gpu_refusal.h"
#include "src/base/log.h"

// Calls of a domain, with libfabric's codes made into errors.
namespace weft::ofi {

namespace {

uint64_t accessOf(PeerAccess peers) {
  uint64_t access = FI_READ | FI_WRITE;
  if (peers >= PeerAccess::write) access |= FI_REMOTE_WRITE;
  if (peers >= PeerAccess::readAndWrite) access |= FI_REMOTE_READ;
  return access;
}

// GPU memory is registered as if it were the host's. libfabric need not know of GPUs: it hands the descriptor
// on, and touches nothing behind it.
int registerDmabuf(fid_domain* domain, uint64_t key, const MemoryDesc& desc, fid_mr** out) {
  const DmabufRange range{desc.fd, desc.fdOffset, desc.length,
                          reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(desc.address) - desc.fdOffset)};
  MemoryAttributes attributes{};
  attributes.dmabuf = &range;
  attributes.count = 1;
  attributes.access = accessOf(desc.peers);
  attributes.requestedKey = key;
  return fi_mr_regattr(domain, reinterpret_cast<const fi_mr_attr*>(&attributes), kDmabufFlag, out);
}

int registerRange(fid_domain* domain, uint64_t key, const MemoryDesc& desc, fid_mr** out) {
  if (desc.kind == MemoryKind::dmabuf) return registerDmabuf(domain, key, desc, out);
  return fi_mr_reg(domain, desc.address, desc.length, accessOf(desc.peers), 0, key, 0, out, nullptr);
}

}  // namespace

Error fabricError(const Library& library, const char* operation, const std::string& object, int64_t code) {
  if (code == -FI_EIO)
    return Error(Code::unavailable, operation, object + ": the card does not answer; see the kernel's log");
  const bool limit = code == -FI_ENOMEM || code == -FI_EMFILE || code == -FI_ENOSPC;
  return Error(limit ? Code::resources : Code::system, operation,
               object + ": " + library.errorText(code) +
                   (limit ? "; check ulimit -l (locked memory) and ulimit -n (descriptors), and what the "
                            "card has at most"
                          : "; FI_LOG_LEVEL=warn shows the provider's words"));
}

Result<std::unique_ptr<Domain>> Domain::open(std::shared_ptr<const Library> library, fi_info& info,
                                             bool gated) {
  auto domain = std::make_unique<Domain>();
  domain->library_ = std::move(library);
  if (gated) domain->gate_ = std::make_unique<Gate>();
  domain->name_ = info.domain_attr->name ? info.domain_attr->name : info.fabric_attr->prov_name;
  const std::string& name = domain->name_;
  int code = domain->library_->openFabric(info.fabric_attr, &domain->fabric_);
  if (code != 0) return fabricError(*domain->library_, "opening a fabric", name, code);
  fid_domain* raw = nullptr;
  code = fi_domain(domain->fabric_.get(), &info, &raw, nullptr);
  if (code != 0) return fabricError(*domain->library_, "opening a domain", name, code);
  domain->domain_.reset(raw);
  return domain;
}

Result<Domain::Registered> Domain::registerMemory(uint64_t id, uint64_t wantedKey, const MemoryDesc& desc) {
  const Entered entered(gate_.get());
  fid_mr* raw = nullptr;
  const int code = registerRange(domain_.get(), wantedKey, desc, &raw);
  if (code == -FI_EIO) cardGone_.store(true, std::memory_order_relaxed);
  if (code != 0)
    return fabricError(
        *library_, "registering memory",
        format("%zu bytes with %s%s", desc.length, name_.c_str(), gpuRefusal(desc.kind, -code)), code);
  FidPtr<fid_mr> region(raw);
  // shm 2.1 reads the descriptor that it is given, although it asks for none. It must not belong to a Domain
  // that is closed before the memory is given up; hence none where there are several Domains.
  const Registered registered{fi_mr_key(raw), gate_ ? nullptr : fi_mr_desc(raw)};
  memory_[id] = std::move(region);
  return registered;
}

Result<FidPtr<fid_eq>> Domain::openEventQueue() {
  fi_eq_attr attributes{};
  attributes.flags = FI_WRITE;  // the provider writes its events in as an application would
  attributes.wait_obj = FI_WAIT_NONE;
  fid_eq* raw = nullptr;
  const int code = fi_eq_open(fabric_.get(), &attributes, &raw, nullptr);
  if (code != 0) return fabricError(*library_, "opening an event queue", "fabric", code);
  return FidPtr<fid_eq>(raw);
}

void Domain::deregister(uint64_t id) {
  const Entered entered(gate_.get());
  memory_.erase(id);
}

void Domain::deregisterAll() {
  const Entered entered(gate_.get());
  memory_.clear();
}

}  // namespace weft::ofi
