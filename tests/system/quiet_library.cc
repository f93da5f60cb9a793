// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "tools/netdriver/comm.h"
#include "tools/netdriver/library.h"

// usage: quiet-library PLUGIN.so
//
// The data path of the built library over a real fabric: what weft itself does, told by the caller's address.
// Every libc call that allocates, locks or enters the kernel is intercepted here; one that comes from inside
// the plugin's file, on the thread that sends and receives, counts. What the fabric's own library does is its
// own business.
using namespace weft;
using namespace weft::netdriver;

namespace {

struct Range {
  uintptr_t first = 0, end = 0;
};
Range plugin;
thread_local bool armed = false;
unsigned long allocations = 0, contended = 0, kernelCalls = 0;
const char* lastCall = "";

bool ours(const void* caller) {
  const auto address = reinterpret_cast<uintptr_t>(caller);
  return armed && address >= plugin.first && address < plugin.end;
}

void note(const void* caller, unsigned long* counter, const char* name) {
  if (!ours(caller)) return;
  ++*counter;
  lastCall = name;
}

template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

int findPlugin(dl_phdr_info* info, size_t, void* path) {
  if (!std::strstr(info->dlpi_name, static_cast<const char*>(path))) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || !(header.p_flags & PF_X)) continue;
    plugin = {info->dlpi_addr + header.p_vaddr, info->dlpi_addr + header.p_vaddr + header.p_memsz};
  }
  return 1;
}

}  // namespace

#define CALLER __builtin_return_address(0)

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void __libc_free(void*);

void* malloc(size_t n) {
  note(CALLER, &allocations, "malloc");
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t m) {
  note(CALLER, &allocations, "calloc");
  return __libc_calloc(n, m);
}
void* realloc(void* p, size_t n) {
  note(CALLER, &allocations, "realloc");
  return __libc_realloc(p, n);
}
void free(void* p) {
  note(CALLER, &allocations, "free");
  __libc_free(p);
}
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static auto* next = real<int(pthread_mutex_t*)>("pthread_mutex_lock");
  if (!ours(CALLER)) return next(mutex);
  if (pthread_mutex_trylock(mutex) == 0) return 0;
  note(CALLER, &contended, "pthread_mutex_lock");
  return next(mutex);
}
ssize_t read(int fd, void* to, size_t n) {
  note(CALLER, &kernelCalls, "read");
  return real<ssize_t(int, void*, size_t)>("read")(fd, to, n);
}
ssize_t write(int fd, const void* from, size_t n) {
  note(CALLER, &kernelCalls, "write");
  return real<ssize_t(int, const void*, size_t)>("write")(fd, from, n);
}
ssize_t send(int fd, const void* from, size_t n, int flags) {
  note(CALLER, &kernelCalls, "send");
  return real<ssize_t(int, const void*, size_t, int)>("send")(fd, from, n, flags);
}
ssize_t recv(int fd, void* to, size_t n, int flags) {
  note(CALLER, &kernelCalls, "recv");
  return real<ssize_t(int, void*, size_t, int)>("recv")(fd, to, n, flags);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  note(CALLER, &kernelCalls, "sendmsg");
  return real<ssize_t(int, const msghdr*, int)>("sendmsg")(fd, message, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  note(CALLER, &kernelCalls, "recvmsg");
  return real<ssize_t(int, msghdr*, int)>("recvmsg")(fd, message, flags);
}
int poll(pollfd* fds, nfds_t n, int timeout) {
  note(CALLER, &kernelCalls, "poll");
  return real<int(pollfd*, nfds_t, int)>("poll")(fds, n, timeout);
}
int epoll_wait(int fd, epoll_event* events, int n, int timeout) {
  note(CALLER, &kernelCalls, "epoll_wait");
  return real<int(int, epoll_event*, int, int)>("epoll_wait")(fd, events, n, timeout);
}
int sched_yield() {
  note(CALLER, &kernelCalls, "sched_yield");
  return real<int()>("sched_yield")();
}
int nanosleep(const timespec* pause, timespec* left) {
  note(CALLER, &kernelCalls, "nanosleep");
  return real<int(const timespec*, timespec*)>("nanosleep")(pause, left);
}
pid_t getpid() {
  note(CALLER, &kernelCalls, "getpid");
  return real<pid_t()>("getpid")();
}
long syscall(long number, ...) {
  note(CALLER, &kernelCalls, "syscall");
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  return real<long(long, ...)>("syscall")(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
}

namespace {

constexpr Milliseconds kPatience{20'000};

struct Link {
  Net& net;
  Ends ends;
  HostBuffer from, to;
  Registration fromHandle, toHandle;

  // One message, every data call of NCCL's in its usual order.
  bool one(size_t bytes, bool receiverFirst) {
    void *send = nullptr, *receive = nullptr;
    RecvArgs in;
    in.data[0] = to.data();
    in.sizes[0] = bytes;
    in.tags[0] = 7;
    in.mhandles[0] = toHandle.mhandle();
    const SendArgs out{from.data(), bytes, 7, fromHandle.mhandle(), nullptr};
    for (long i = 0; i < 50'000'000 && !(send && receive); i++) {
      if (!receive && (receiverFirst || send || i > 2) &&
          net.irecv(ends.recv.raw(), in, &receive) != ncclSuccess)
        return false;
      if (!send && net.isend(ends.send.raw(), out, &send) != ncclSuccess) return false;
    }
    int sent = 0, received = 0, size[8] = {};
    for (long i = 0; i < 50'000'000 && !(sent && received); i++) {
      if (!sent && net.test(send, &sent, size) != ncclSuccess) return false;
      if (!received && net.test(receive, &received, size) != ncclSuccess) return false;
    }
    return sent && received;
  }

  bool many(int rounds) {
    static constexpr size_t kSizes[] = {0, 8, 4096, 8192, 65'536, 1'000'000};
    for (int i = 0; i < rounds; i++) {
      if (!one(kSizes[i % 6], i % 2 == 0)) return false;
    }
    return true;
  }
};

Result<Link> makeLink(const Context& context) {
  TRY(Listener listener, listen(context, 0));
  const Handle self = listener.handle;
  TRY(Ends ends, connectBoth(context, 0, self, std::move(listener), kPatience));
  TRY(HostBuffer from, HostBuffer::create(1 << 20));
  TRY(HostBuffer to, HostBuffer::create(1 << 20));
  TRY(Registration fromHandle, Registration::create(ends.send, from.span()));
  TRY(Registration toHandle, Registration::create(ends.recv, to.span()));
  return Link{context.net(), std::move(ends),       std::move(from),
              std::move(to), std::move(fromHandle), std::move(toHandle)};
}

Status run(const char* path) {
  TRY(auto library, Library::open(path));
  dl_iterate_phdr(findPlugin, const_cast<char*>("libnccl-net-weft.so"));
  if (plugin.end == 0) return Error(Code::internal, "finding the plugin", "it is not mapped");
  TRY(Context context, Context::create(library->net(), 1));
  armed = true;  // that the interception works: opening a connection allocates inside the plugin
  TRY(Link link, makeLink(context));
  armed = false;
  if (allocations == 0) return Error(Code::internal, "arming", "no allocation was seen while connecting");
  if (!link.many(300)) return Error(Code::internal, "warming up", "a call failed");
  allocations = contended = kernelCalls = 0;
  constexpr int kMessages = 6000;
  armed = true;
  const bool whole = link.many(kMessages);
  armed = false;
  std::printf(
      "%d messages: from inside the plugin %lu allocations, %lu contended locks, %lu system calls%s%s\n",
      kMessages, allocations, contended, kernelCalls, *lastCall ? ", last " : "",
      kernelCalls + contended ? lastCall : "");
  if (!whole) return Error(Code::internal, "sending", "a call failed");
  if (allocations + contended + kernelCalls == 0) return {};
  return Error(Code::internal, "watching", "the data path is not quiet");
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = run(argc > 1 ? argv[1] : "");
  if (status) return 0;
  std::fprintf(stderr, "FAILED: %s\n", status.error().message().c_str());
  return 1;
}
