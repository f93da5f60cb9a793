// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/process.h"

#include <array>
#include <atomic>
#include <mutex>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "src/base/config.h"
#include "src/base/number.h"

// The page that tells a forked child, and threads without signals.
namespace weft {

namespace {

std::mutex guardMutex;
int guardUsers = 0;

// Null: this kernel has no MADV_WIPEONFORK.
void* mapGuardPage() {
  const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, bytes, MADV_WIPEONFORK) == 0) return page;
  munmap(page, bytes);  // before Linux 4.14: no guard, as no cheap way exists
  return nullptr;
}

}  // namespace

std::string hostName() {
  std::array<char, 256> buffer{"unknown"};
  (void)gethostname(buffer.data(), buffer.size() - 1);
  return buffer.data();
}

// The variables of torchrun, Open MPI, PMIx, PMI and Slurm. The first of them is the one that is most often
// set by hand.
std::string placeName() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* value = environmentValue(name);
    if (!value) continue;
    const auto rank = parseNumber<uint32_t>(value);
    return rank ? "rank " + std::to_string(*rank) + " on " + hostName() : hostName();
  }
  return hostName();
}

std::string raiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return {};
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  return std::to_string(before) + " to " + std::to_string(limit.rlim_max);
}

std::atomic<const std::atomic<unsigned char>*> forkGuardPage{nullptr};

// The page is armed before it is published (release), so a reader never sees a page of zeros.
ForkGuard::ForkGuard() {
  std::lock_guard lock(guardMutex);
  if (guardUsers++ > 0) return;
  void* page = mapGuardPage();
  if (!page) return;
  auto* armed = static_cast<std::atomic<unsigned char>*>(page);
  armed->store(1, std::memory_order_relaxed);
  forkGuardPage.store(armed, std::memory_order_release);
}

ForkGuard::~ForkGuard() {
  std::lock_guard lock(guardMutex);
  if (--guardUsers > 0) return;
  if (const auto* page = forkGuardPage.exchange(nullptr))
    munmap(const_cast<std::atomic<unsigned char>*>(page), static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

namespace {

// Blocks all signals for a scope: a thread that starts in it inherits the full mask.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

Result<std::thread> startThread(const char* name, std::function<void()> body) {
  try {
    const SignalsBlocked forTheThread;
    std::thread thread(std::move(body));
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& error) {
    return Error(Code::resources, "starting a thread",
                 std::string(name) + ": " + error.what() + "; raise the limit on processes (ulimit -u)");
  }
}

}  // namespace weft
