// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// The data path after warm-up: no allocation, no lock anyone else holds, no system call. A program of its
// own, because it counts every malloc, sees every mutex and at last makes the kernel kill it for any system
// call.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
}

namespace {

bool armed = false;
unsigned long allocations = 0, locks = 0, contended = 0;

void note(unsigned long* counter) {
  if (armed) ++*counter;
}

}  // namespace

extern "C" void* malloc(size_t n) {
  note(&allocations);
  return __libc_malloc(n);
}
extern "C" void* calloc(size_t n, size_t m) {
  note(&allocations);
  return __libc_calloc(n, m);
}
extern "C" void* realloc(void* p, size_t n) {
  note(&allocations);
  return __libc_realloc(p, n);
}
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static auto* real = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  note(&locks);
  if (pthread_mutex_trylock(mutex) == 0) return 0;
  note(&contended);
  return real(mutex);
}

namespace {

struct Exchange {
  World& world;
  Connection link;
  Buffer out, in;

  explicit Exchange(World& w)
      : world(w), link(w.connect(0)), out(*link.send, 1 << 20), in(*link.recv, 1 << 20) {}

  // One message of `bytes`, with its receive posted before or after; every call the data path has.
  bool one(size_t bytes, bool receiverFirst) {
    Request* send = nullptr;
    Request* receive = nullptr;
    const ReceiveSpec spec{in.data(), bytes, 1, in.handle(), nullptr};
    for (int i = 0; i < 200 && !(send && receive); i++) {
      if (!receive && (receiverFirst || send || i > 3))
        receive = link.recv->irecv(std::span(&spec, 1)).request;
      if (!send && (!receiverFirst || receive))
        send = link.send->isend(out.data(), bytes, 1, out.handle(), nullptr).request;
    }
    bool sent = false, received = false;
    int size = -1;
    for (int i = 0; i < 400 && send && receive && !(sent && received); i++) {
      if (!sent) sent = link.send->test(send, nullptr).done;
      if (!received) received = link.recv->test(receive, &size).done;
    }
    return sent && received && size == static_cast<int>(bytes);
  }

  bool many(int rounds) {
    static constexpr size_t kSizes[] = {0, 8, 4096, 8192, 9000, 100'000, 1'000'000};
    for (int i = 0; i < rounds; i++) {
      if (!one(kSizes[i % 7], i % 2 == 0)) return false;
    }
    return true;
  }
};

void onSystemCall(int, siginfo_t* info, void*) {
  char line[80];
  const int n = snprintf(line, sizeof line, "FAILED: system call %d on the data path\n", info->si_syscall);
  (void)!write(1, line, static_cast<size_t>(n));
  _exit(1);
}

// From here on only write and exit are allowed; anything else traps.
bool forbidSystemCalls() {
  struct sigaction action {};
  action.sa_sigaction = onSystemCall;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSYS, &action, nullptr);
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{sizeof filter / sizeof *filter, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int report(bool whole, int messages) {
  char line[200];
  const int n =
      snprintf(line, sizeof line,
               "%d messages, %lu allocations, %lu locks taken, %lu of them contended, no system call\n",
               messages, allocations, locks, contended);
  (void)!write(1, line, static_cast<size_t>(n));
  return whole && allocations == 0 && contended == 0 ? 0 : 1;
}

}  // namespace

TEST_CASE("quiet data path") {
  WorldOptions options;
  for (int i = 0; i < 2; i++) {
    loop::LoopOptions fabric;
    fabric.rails = options.rails[i] = 2;
    fabric.landing = loop::Landing::whenPolled;
    fabric.delivery = Delivery::selectable;
    options.transports[i] = loop::makeTransport(fabric);
  }
  World world(options);
  Exchange exchange(world);
  world.pump(4);
  REQUIRE(exchange.many(2000));

  armed = true;  // that the traps can fire
  {
    std::vector<int> proof(1000);
    CHECK(proof.size() == 1000);
  }
  const bool counts = allocations > 0;
  allocations = locks = contended = 0;
  armed = false;
  REQUIRE(counts);
  REQUIRE(forbidSystemCalls());
  armed = true;
  const bool whole = exchange.many(20'000);
  armed = false;
  _exit(report(whole, 20'000));  // nothing else may be called any more
}
