// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/process.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <ctime>
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

const char* programName = nullptr;  // null: it is a rank, or nobody has said

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
  if (programName) return std::string(programName) + " on " + hostName();
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* value = environmentValue(name);
    if (!value) continue;
    const auto rank = parseNumber<uint32_t>(value);
    return rank ? "rank " + std::to_string(*rank) + " on " + hostName() : hostName();
  }
  return hostName();
}

void nameProgram(const char* program) {
  programName = program;
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

uint64_t nanosecondsBy(clockid_t clock) {
  timespec used{};
  if (clock_gettime(clock, &used) != 0) return 0;
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(used.tv_nsec);
}

// A name of our threads. Plain data that is never destroyed: threads may end after everything else has.
struct ThreadKind {
  std::array<char, 16> name;
  uint64_t ended;                    // nanoseconds of those that are over
  std::array<clockid_t, 16> living;  // the clocks of the first so many that live
  size_t count;
};
std::mutex threadsMutex;  // of what follows
std::array<ThreadKind, 16> threadKinds{};

// Null where there are more names than places.
ThreadKind* kindOfThread(const char* name) {
  for (ThreadKind& kind : threadKinds) {
    if (kind.name[0] == '\0') std::strncpy(kind.name.data(), name, kind.name.size() - 1);
    if (std::strncmp(kind.name.data(), name, kind.name.size() - 1) == 0) return &kind;
  }
  return nullptr;
}

// Notes the calling thread for as long as it lives.
class NotedThread {
 public:
  explicit NotedThread(const char* name) {
    if (pthread_getcpuclockid(pthread_self(), &clock_) != 0) return;
    const std::lock_guard lock(threadsMutex);
    kind_ = kindOfThread(name);
    if (kind_ && kind_->count < kind_->living.size()) kind_->living[kind_->count++] = clock_;
  }
  ~NotedThread() {
    if (!kind_) return;
    const std::lock_guard lock(threadsMutex);
    kind_->ended += nanosecondsBy(clock_);
    auto* const end = kind_->living.data() + kind_->count;
    auto* const mine = std::find(kind_->living.data(), end, clock_);
    if (mine == end) return;
    *mine = *(end - 1);
    kind_->count--;
  }
  NotedThread(const NotedThread&) = delete;
  NotedThread& operator=(const NotedThread&) = delete;

 private:
  clockid_t clock_{};
  ThreadKind* kind_ = nullptr;
};

}  // namespace

std::vector<ThreadTime> threadTimes() {
  std::vector<ThreadTime> times;
  const std::lock_guard lock(threadsMutex);
  for (const ThreadKind& kind : threadKinds) {
    if (kind.name[0] == '\0') break;
    uint64_t all = kind.ended;
    for (size_t i = 0; i < kind.count; i++) all += nanosecondsBy(kind.living[i]);
    times.push_back({kind.name.data(), all});
  }
  return times;
}

Result<std::thread> startThread(const char* name, std::function<void()> body) {
  try {
    const SignalsBlocked forTheThread;
    std::thread thread([label = std::string(name), work = std::move(body)] {
      const NotedThread noted(label.c_str());
      work();
    });
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& error) {
    return Error(Code::resources, "starting a thread",
                 std::string(name) + ": " + error.what() + "; raise the limit on processes (ulimit -u)");
  }
}

}  // namespace weft
