// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/pool.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "tests/softgpu/ownership.h"
#include "tests/softgpu/report.h"

namespace softgpu {

// Zeros, which is what a place that nobody took has there, are no page.
struct PoolPage {
  std::atomic<uint64_t> users;
  std::atomic<int64_t>
      promised;  // descriptors that were handed out and not imported; below 0: some were twice
  uint64_t magic;
  uint64_t size;
};

namespace {

constexpr uint64_t kMagic = 0x6c6f6f7074666f73;  // "softpool"
constexpr size_t kPage = 4096;
constexpr size_t kUnit = size_t{2} << 20;     // places begin with a multiple of it
constexpr off_t kFileBytes = off_t{1} << 46;  // sparse, and never used up

// Never destroyed: exit handlers still allocate and free.
struct Pool {
  std::mutex lock;
  int fd = -1;
  pid_t owner = 0;
  size_t end = 0;
};

Pool& ourPool() {
  static auto* const kPool = &immortal<Pool>();
  return *kPool;
}

// A forked child that goes on without exec gets a file of its own.
int poolFile(Pool& pool) {
  if (pool.owner == getpid()) return pool.fd;
  pool.fd = memfd_create("softgpu", MFD_CLOEXEC);
  pool.owner = getpid();
  pool.end = 0;
  if (pool.fd >= 0 && ftruncate(pool.fd, kFileBytes) != 0) close(std::exchange(pool.fd, -1));
  return pool.fd;
}

PoolPage* mapPage(int fd, size_t begin) {
  void* const page =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(begin - kPage));
  return page == MAP_FAILED ? nullptr : static_cast<PoolPage*>(page);
}

// One user more, unless there is none left and none to come.
bool join(PoolPage& page, bool promised) {
  uint64_t users = page.users.load();
  while (users > 0 || (promised && page.promised > 0)) {
    if (!page.users.compare_exchange_weak(users, users + 1)) continue;
    if (promised) --page.promised;
    return true;
  }
  return false;
}

}  // namespace

PoolPlace::PoolPlace(PoolPlace&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), begin_(other.begin_), page_(std::exchange(other.page_, nullptr)) {}

PoolPlace::~PoolPlace() {
  if (page_ == nullptr) return;
  const size_t whole = size() + kPage;
  if (page_->users.fetch_sub(1) == 1 && page_->promised <= 0)
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin_ - kPage),
              static_cast<off_t>(whole));
  munmap(page_, kPage);
  close(fd_);
}

size_t PoolPlace::size() const {
  return page_->size;
}

void PoolPlace::promise() const {
  ++page_->promised;
}

std::optional<PoolPlace> takePlace(size_t size) {
  Pool* const pool = &ourPool();
  const std::lock_guard guard(pool->lock);
  const int file = poolFile(*pool);
  const size_t begin = (pool->end + kPage + kUnit - 1) / kUnit * kUnit;
  const int fd = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, 0);
  PoolPage* const page = fd < 0 ? nullptr : mapPage(fd, begin);
  if (page == nullptr) {
    report("no memory for an allocation of " + std::to_string(size) + " bytes: " + std::strerror(errno));
    if (fd >= 0) close(fd);
    return std::nullopt;
  }
  pool->end = begin + size;
  page->magic = kMagic;
  page->size = size;
  page->users = 1;
  return PoolPlace(fd, begin, page);
}

bool isOfThisProcess(const PoolPlace& place) {
  struct stat theirs {};
  struct stat ours {};
  const std::lock_guard guard(ourPool().lock);
  return fstat(place.fd(), &theirs) == 0 && fstat(ourPool().fd, &ours) == 0 && theirs.st_ino == ours.st_ino;
}

bool isPool(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == kFileBytes;
}

std::optional<PoolPlace> adoptPlace(int fd, size_t begin, bool promised) {
  const bool mayBe = isPool(fd) && begin >= kUnit && begin % kUnit == 0;
  PoolPage* const page = mayBe ? mapPage(fd, begin) : nullptr;
  if (page != nullptr && page->magic == kMagic && join(*page, promised)) return PoolPlace(fd, begin, page);
  if (page != nullptr) munmap(page, kPage);
  close(fd);
  return std::nullopt;
}

}  // namespace softgpu
