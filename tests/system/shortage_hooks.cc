// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/system/shortage_hooks.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/resource.h>

#include "tests/system/driver/process_state.h"

namespace {

using weft::system::Resource;

constexpr uint64_t kNever = UINT64_MAX;

std::atomic<uintptr_t> codeBegin{0}, codeEnd{0};
std::atomic<uint64_t> failAt[3] = {kNever, kNever, kNever};
std::atomic<uint64_t> seen{0};
std::atomic<bool> hit{false};
rlimit before{};

int findCode(dl_phdr_info* info, size_t, void* found) {
  if (std::strstr(info->dlpi_name, "libnccl-net-weft.so") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
    codeBegin = info->dlpi_addr + header.p_vaddr;
    codeEnd = codeBegin + header.p_memsz;
    *static_cast<bool*>(found) = true;
  }
  return 1;
}

bool fails(Resource resource) {
  const uint64_t at = failAt[static_cast<size_t>(resource)].load(std::memory_order_relaxed);
  if (at == kNever || seen.fetch_add(1, std::memory_order_relaxed) != at) return false;
  hit = true;
  return true;
}

bool memoryFails(const void* caller) {
  const auto address = reinterpret_cast<uintptr_t>(caller);
  if (address < codeBegin || address >= codeEnd || !fails(Resource::memory)) return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

#define CALLER __builtin_return_address(0)

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t n) {
  return memoryFails(CALLER) ? nullptr : __libc_malloc(n);
}
void* calloc(size_t n, size_t m) {
  return memoryFails(CALLER) ? nullptr : __libc_calloc(n, m);
}
void* realloc(void* p, size_t n) {
  return memoryFails(CALLER) ? nullptr : __libc_realloc(p, n);
}
void* aligned_alloc(size_t alignment, size_t n) {
  return memoryFails(CALLER) ? nullptr : __libc_memalign(alignment, n);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static auto* next = reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"));
  return fails(Resource::threads) ? EAGAIN : next(thread, attributes, body, argument);
}
}

namespace weft::system {

const char* resourceName(Resource resource) {
  constexpr const char* kNames[] = {"memory", "descriptors", "threads"};
  return kNames[static_cast<size_t>(resource)];
}

bool findPluginCode() {
  bool found = false;
  dl_iterate_phdr(findCode, &found);
  return found;
}

// The kernel gives out the lowest free number, so the limit is set to leave n numbers free.
void leaveDescriptors(uint64_t n) {
  getrlimit(RLIMIT_NOFILE, &before);
  std::vector<bool> used;
  for (const DescriptorState& open : descriptors()) {
    const auto fd = static_cast<size_t>(open.fd);
    if (fd >= used.size()) used.resize(fd + 1);
    used[fd] = true;
  }
  size_t limit = 0;
  for (uint64_t free = 0; free < n; ++limit) free += limit >= used.size() || !used[limit] ? 1 : 0;
  rlimit now = before;
  now.rlim_cur = std::max<rlim_t>(limit, 1);
  setrlimit(RLIMIT_NOFILE, &now);
}

void arm(Resource resource, uint64_t n) {
  hit = resource == Resource::descriptors;
  seen = 0;
  if (resource == Resource::descriptors)
    leaveDescriptors(n);
  else
    failAt[static_cast<size_t>(resource)] = n;
}

bool disarm() {
  for (auto& at : failAt) at = kNever;
  if (before.rlim_cur != 0) setrlimit(RLIMIT_NOFILE, &before);
  before = {};
  return hit;
}

uint64_t requestsSeen() {
  return seen;
}

}  // namespace weft::system
