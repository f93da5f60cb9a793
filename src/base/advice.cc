// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/advice.h"

#include <cerrno>
#include <cstring>
#include <sys/resource.h>

namespace weft {

namespace {

std::string descriptorsText() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "a limited number of";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
}

std::string lockedText() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "not known";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur >> 10) + " KiB";
}

constexpr const char* kEphemeral =
    "all ephemeral ports are in use: ss -s counts them, sysctl net.ipv4.ip_local_port_range widens them";

}  // namespace

// strerror is not thread-safe; this is glibc's strerror_r, which need not use the buffer.
std::string errnoText(int errnum) {
  char buffer[128] = "";
  return strerror_r(errnum, buffer, sizeof buffer);
}

std::string nextStep(int errnum) {
  switch (errnum) {
    case EMFILE:
      return "this process may have " + descriptorsText() +
             " descriptors: raise ulimit -n (systemd: LimitNOFILE, docker: --ulimit nofile)";
    case ENFILE:
      return "this host has no descriptor left: raise sysctl fs.file-max";
    case ENOMEM:
      return "memory, or a limit on it, is used up: free -m, the control group's memory.max, and ulimit -l, "
             "which "
             "is " +
             lockedText();
    case ENOBUFS:
      return "the kernel has no memory left for sockets or queues: raise sysctl net.ipv4.tcp_mem, look with "
             "ss -m";
    case ENOSPC:
      return "the file system or a table of the kernel is full: df -h, df -i";
    case EDQUOT:
      return "the quota of this user is used up: quota -s";
    case EROFS:
      return "it is mounted read-only: name another folder";
    case EACCES:
      return "this user has no permission: compare id with ls -l; then SELinux or AppArmor";
    case EPERM:
      return "the kernel does not allow it to this process: a container's capabilities or seccomp profile, "
             "or a "
             "rule of a firewall";
    case EADDRNOTAVAIL:
      return std::string("no interface that is up has this address (ip -br address), or ") + kEphemeral;
    case EADDRINUSE:
      return std::string("another process has this port (ss -tlnp names it) or, of port 0, ") + kEphemeral;
    case ECONNREFUSED:
      return "nothing listens there: the process has ended, or the address is of an earlier job";
    case ENETUNREACH:
    case EHOSTUNREACH:
      return "no way leads there: ip route get ADDRESS; WEFT_SOCKET_IFNAME chooses other interfaces";
    case ENETDOWN:
      return "its interface is down: ip -br link";
    default:
      return {};
  }
}

std::string errnoWords(int errnum) {
  const std::string step = nextStep(errnum);
  return errnoText(errnum) + (step.empty() ? "" : "; " + step);
}

}  // namespace weft
