// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/random.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "src/base/fd.h"
#include "src/base/log.h"

// Random bytes by getrandom(2), and by /dev/urandom where a filter of system calls forbids that.
namespace weft {

namespace {

// Each returns the part that is left to fill.
std::span<std::byte> byCall(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = getrandom(out.data(), out.size(), 0);
    if (n > 0) out = out.subspan(static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  return out;
}

std::span<std::byte> byDevice(std::span<std::byte> out) {
  const Fd device(::open("/dev/urandom", O_RDONLY | O_CLOEXEC));
  while (device && !out.empty()) {
    const ssize_t n = ::read(device.get(), out.data(), out.size());
    if (n > 0) out = out.subspan(static_cast<size_t>(n));
    if (n == 0 || (n < 0 && errno != EINTR)) break;
  }
  return out;
}

bool isFilled(std::span<std::byte> out) {
  return byDevice(byCall(out)).empty();
}

constexpr const char* kNoRandom =
    "the kernel gives no random bytes, neither by getrandom(2) nor by /dev/urandom; secrets would be known "
    "to "
    "all: let the filter of system calls (seccomp) pass getrandom";

}  // namespace

Status checkRandom() {
  uint64_t value = 0;
  if (isFilled(std::as_writable_bytes(std::span(&value, 1)))) return {};
  return Error(Code::system, "making secrets", kNoRandom);
}

void fillRandom(std::span<std::byte> out) {
  if (isFilled(out)) return;
  WEFT_LOG(error, "%s; this process ends", kNoRandom);
  std::abort();
}

uint64_t randomU64() {
  uint64_t value = 0;
  fillRandom(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

}  // namespace weft
