// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "weft/result.h"

// Facts about the process we live in, and a guard against fork: a forked child (a DataLoader worker) shares
// our descriptors and fabric objects but must never touch them. Any thread.
namespace weft {

// As gethostname(2) says it; "unknown" where it fails.
std::string hostName();

// How this process is called in the logs of others: "rank 3 on node7" where a launcher says which rank it is,
// else "node7".
std::string placeName();

// True in a process that forked from the one that armed the guard. No system call: it reads a page that the
// kernel wipes in the child (madvise(2), MADV_WIPEONFORK), so the data path may ask. False while the guard is
// not armed.
inline bool inForkedChild();

// Arms the guard for this object's life; objects nest.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
};

// A thread named `name` (at most 15 characters, "weft-...") in which every signal is blocked: signals belong
// to the application's threads. Returns an error where the process may not have another thread.
Result<std::thread> startThread(const char* name, std::function<void()> body);

// First byte of the wiped page: 1 where it was armed, 0 in a forked child; null while the guard is not armed.
[[gnu::visibility("hidden")]] extern std::atomic<const std::atomic<unsigned char>*> forkGuardPage;

inline bool inForkedChild() {
  const auto* armed = forkGuardPage.load(std::memory_order_acquire);
  return armed && armed->load(std::memory_order_relaxed) == 0;
}

}  // namespace weft
