// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Protection domains, memory regions, address handles.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "tests/softefa/efa_abi.h"
#include "tests/softefa/verbs_objects.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace softefa;

namespace {

struct Wanted {
  std::byte* memory;  // where the device finds it
  size_t length;
  uint64_t iova;  // what requests call its first byte
  unsigned access;
};

int refusal(const Nic& nic, const Wanted& wanted) {
  const bool writes = (wanted.access & IBV_ACCESS_REMOTE_WRITE) != 0;
  if (wanted.length == 0 || (writes && !(wanted.access & IBV_ACCESS_LOCAL_WRITE))) return EINVAL;
  if (writes && nic.settings().generation < Generation::write) return EOPNOTSUPP;
  return 0;
}

ibv_mr* addRegion(ibv_pd* pd, const Wanted& wanted, void* user, DmabufMapping mapping) {
  Regions::Region region;
  region.address = wanted.iova;
  region.length = wanted.length;
  region.memory = wanted.memory;
  region.access = wanted.access;
  region.domain = pd;
  const uint32_t key = nicOf(pd->context).lock()->regions.add(region);
  if (key == 0) {
    errno = ENOMEM;
    return nullptr;
  }
  auto mr = std::make_unique<MemoryRegion>();
  mr->verbs = {pd->context, pd, user, wanted.length, key, key, key};
  mr->dmabuf = std::move(mapping);
  ++objectOf<ProtectionDomain>(pd)->users;
  return &release(std::move(mr))->verbs;
}

// As the kernel finds out when it pins pages: what the CPU may not read, memory of a GPU, has none.
bool readable(const std::byte* memory, size_t length) {
  char byte = 0;
  for (const std::byte* at : {memory, memory + length - 1}) {
    const iovec to{&byte, 1}, from{const_cast<std::byte*>(at), 1};
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != 1 && errno == EFAULT) return false;
  }
  return true;
}

ibv_mr* registerMemory(ibv_pd* pd, void* memory, size_t length, uint64_t iova, unsigned access) {
  Nic& nic = nicOf(pd->context);
  const Wanted wanted{static_cast<std::byte*>(memory), length, iova, access};
  errno = nic.plannedFailure("reg_mr");
  if (errno == 0) errno = refusal(nic, wanted);
  if (errno == 0 && !readable(wanted.memory, length)) errno = EFAULT;
  return errno == 0 ? addRegion(pd, wanted, memory, {}) : nullptr;
}

// A dma-buf here is memory of the software GPU (../softgpu); others have none that could be mapped.
bool isDmabuf(int fd) {
  char path[64], name[64] = {};
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return readlink(path, name, sizeof name - 1) > 0 && std::strncmp(name, "/memfd:softgpu", 14) == 0;
}

// The range begins at the descriptor's own position. A device sees whole pages, as the kernel maps them.
ibv_mr* registerDmabuf(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, unsigned access) {
  constexpr uint64_t kPage = 4096;
  const off_t begins = lseek(fd, 0, SEEK_CUR);
  struct stat file {};
  if (begins < 0 || fstat(fd, &file) != 0 || !isDmabuf(fd) || iova % kPage != offset % kPage) {
    errno = EINVAL;
    return nullptr;
  }
  const auto room = static_cast<uint64_t>(file.st_size - begins);
  if (offset > room || length > room - offset) {
    errno = EINVAL;
    return nullptr;
  }
  const uint64_t first = static_cast<uint64_t>(begins) + offset;
  const uint64_t before = first % kPage;
  void* const mapped = mmap(nullptr, length + before, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                            static_cast<off_t>(first - before));
  if (mapped == MAP_FAILED) return nullptr;
  DmabufMapping mapping(mapped, length + before);
  return addRegion(pd, {static_cast<std::byte*>(mapped) + before, length, iova, access}, nullptr,
                   std::move(mapping));
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

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  Nic& nic = nicOf(pd->context);
  errno = nic.plannedFailure("reg_dmabuf_mr");
  if (errno == 0) errno = refusal(nic, {nullptr, length, iova, static_cast<unsigned>(access)});
  if (errno != 0) return nullptr;
  return registerDmabuf(pd, offset, length, iova, fd, static_cast<unsigned>(access));
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
