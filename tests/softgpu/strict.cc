// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/strict.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <unistd.h>

#include "tests/softgpu/memory.h"

namespace softgpu {

namespace {

struct sigaction previous;

void handOn(int number, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(number, info, context);
    return;
  }
  signal(number, SIG_DFL);
  raise(number);
}

// The process ends here in any case, so taking the table's lock does no harm that matters.
void onFault(int number, siginfo_t* info, void* context) {
  const auto found = findMapping(info->si_addr);
  if (!found || found->kind != MemoryKind::device) {
    handOn(number, info, context);
    return;
  }
  char line[256];
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const int length = std::snprintf(line, sizeof line,
                                   "software GPU: strict: the CPU touched device memory at %p, byte %zu of "
                                   "allocation %llu (%zu bytes) of GPU %d; "
                                   "use the driver's copies or a mapped BAR\n",
                                   info->si_addr, static_cast<size_t>(address - found->base),
                                   static_cast<unsigned long long>(found->id), found->size, found->device);
  if (length > 0 && write(STDERR_FILENO, line, static_cast<size_t>(length)) < 0) _exit(134);
  signal(SIGABRT, SIG_DFL);
  abort();
}

}  // namespace

void watchForAccess() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = onFault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &previous);
  });
}

}  // namespace softgpu
