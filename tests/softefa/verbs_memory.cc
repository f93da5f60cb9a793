// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Protection domains, memory regions, address handles.
#include <cerrno>
#include <cstring>

#include <infiniband/verbs.h>

#include "tests/softefa/efa_abi.h"
#include "tests/softefa/verbs_objects.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace softefa;

namespace {

ibv_mr* registerMemory(ibv_pd* pd, void* memory, size_t length, uint64_t iova, unsigned access) {
  Nic& nic = nicOf(pd->context);
  const bool writes = (access & IBV_ACCESS_REMOTE_WRITE) != 0;
  errno = nic.plannedFailure("reg_mr");
  if (errno == 0 && (length == 0 || (writes && !(access & IBV_ACCESS_LOCAL_WRITE)))) errno = EINVAL;
  if (errno == 0 && writes && nic.settings().generation < Generation::write) errno = EOPNOTSUPP;
  if (errno != 0) return nullptr;
  Regions::Region region;
  region.address = iova;
  region.length = length;
  region.memory = static_cast<std::byte*>(memory);
  region.access = access;
  region.domain = pd;
  const uint32_t key = nic.lock()->regions.add(region);
  if (key == 0) {
    errno = ENOMEM;
    return nullptr;
  }
  auto mr = std::make_unique<MemoryRegion>();
  mr->verbs = {pd->context, pd, memory, length, key, key, key};
  ++objectOf<ProtectionDomain>(pd)->users;
  return &release(std::move(mr))->verbs;
}

}  // namespace

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  errno = nicOf(context).plannedFailure("alloc_pd");
  if (errno != 0) return nullptr;
  auto domain = std::make_unique<ProtectionDomain>();
  domain->verbs.context = context;
  return &release(std::move(domain))->verbs;
}

int ibv_dealloc_pd(ibv_pd* pd) {
  if (objectOf<ProtectionDomain>(pd)->users != 0) return EBUSY;
  adopt<ProtectionDomain>(pd);
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* memory, size_t length, int access) {
  return registerMemory(pd, memory, length, reinterpret_cast<uintptr_t>(memory),
                        static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* memory, size_t length, uint64_t iova, int access) {
  return registerMemory(pd, memory, length, iova, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* memory, size_t length, uint64_t iova, unsigned access) {
  return registerMemory(pd, memory, length, iova, access);
}

// There is no memory behind a dma-buf that this process could copy to; users go on to plain registration.
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
  errno = EOPNOTSUPP;
  return nullptr;
}

int ibv_dereg_mr(ibv_mr* mr) {
  nicOf(mr->context).lock()->regions.remove(mr->lkey);
  --objectOf<ProtectionDomain>(mr->pd)->users;
  adopt<MemoryRegion>(mr);
  return 0;
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  OpenedDevice& opened = *openedOf(pd->context);
  errno = opened.nic->plannedFailure("create_ah");
  if (errno == 0 && (!attr->is_global || attr->port_num != 1)) errno = EINVAL;
  if (errno != 0) return nullptr;
  auto handle = std::make_unique<AddressHandle>();
  std::memcpy(handle->gid.bytes.data(), attr->grh.dgid.raw, handle->gid.bytes.size());
  const auto number = opened.nic->lock()->addresses.add(pd, handle->gid);
  if (!number) {
    errno = ENOMEM;
    return nullptr;
  }
  handle->verbs = {pd->context, pd, 0};
  handle->number = *number;
  ++objectOf<ProtectionDomain>(pd)->users;
  const std::lock_guard lock(opened.handlesMutex);
  opened.handles.insert(&handle->verbs);
  return &release(std::move(handle))->verbs;
}

int ibv_destroy_ah(ibv_ah* ah) {
  OpenedDevice& opened = *openedOf(ah->context);
  {
    const std::lock_guard lock(opened.handlesMutex);
    opened.handles.erase(ah);
  }
  const auto handle = adopt<AddressHandle>(ah);
  opened.nic->lock()->addresses.remove(handle->number);
  --objectOf<ProtectionDomain>(ah->pd)->users;
  return 0;
}

int softefa_query_ah(ibv_ah* ah, EfaAhAttr* attr, uint32_t size) {
  EfaAhAttr full{};
  full.ahn = objectOf<AddressHandle>(ah)->number;
  copyKnown(attr, full, size);
  return 0;
}
}
