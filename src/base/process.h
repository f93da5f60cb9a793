// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "weft/result.h"

// Facts about this process, and a guard against fork: a forked child (a DataLoader worker) shares our
// descriptors and fabric objects, and must never touch them. Any thread.
namespace weft {

// The name of gethostname(2); "unknown" where that fails.
std::string hostName();

// The name of this process in the logs of others: "rank 3 on node7" where a launcher tells the rank,
// "weft-aggd on node7" where the program has said what it is, else "node7".
std::string placeName();
// `program` lives as long as the process. Before there are other threads.
void nameProgram(const char* program);

// Raises the soft limit of descriptors to the hard one, as NCCL does for itself: a rank has several for each
// peer. The text says what the limit was and is, and is empty where nothing changed.
std::string raiseDescriptorLimit();

// True in a process that was forked from the one that armed the guard. It makes no system call: it reads a
// page that the kernel wipes in the child (madvise(2), MADV_WIPEONFORK), so the data path may ask. False
// while the guard is not armed, and on kernels before 4.14.
inline bool inForkedChild();

// Arms the guard as long as the object lives; objects nest.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
};

// Starts a thread named `name` (at most 15 characters, "weft-..."). It blocks every signal, as signals belong
// to the application's threads. An error where the process gets no further thread.
Result<std::thread> startThread(const char* name, std::function<void()> body);

// Processor time of all threads that startThread has started in this process, ended ones included, added up
// by name.
struct ThreadTime {
  std::string name;
  uint64_t nanoseconds = 0;
};
std::vector<ThreadTime> threadTimes();

// The first byte of the wiped page: 1 where it was armed, 0 in a forked child. Null while the guard is not
// armed.
[[gnu::visibility("hidden")]] extern std::atomic<const std::atomic<unsigned char>*> forkGuardPage;

inline bool inForkedChild() {
  const auto* armed = forkGuardPage.load(std::memory_order_acquire);
  return armed && armed->load(std::memory_order_relaxed) == 0;
}

}  // namespace weft
