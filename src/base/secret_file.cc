// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/secret_file.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fd.h"
#include "src/base/log.h"

// The file behind "@FILE". Links are followed: a mounted secret of Kubernetes is one.
namespace weft {

namespace {

Error unread(std::string detail, int errnum = 0) {
  return Error(Code::config, "reading the secret", std::move(detail), errnum);
}

void warnOfReaders(const std::string& path, mode_t mode) {
  static std::atomic<bool> said{false};
  if ((mode & (S_IROTH | S_IWOTH | S_IWGRP)) == 0 || said.exchange(true, std::memory_order_relaxed)) return;
  WEFT_LOG(warn, "the secret in %s is open to other users: chmod o-rw,g-w %s, and then make a new one",
           path.c_str(), path.c_str());
}

}  // namespace

Result<std::string> readSecretSetting(const std::string& setting) {
  if (!setting.starts_with('@')) return setting;
  const std::string path = setting.substr(1);
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0) return unread(path + " cannot be read", errno);
  if (!S_ISREG(facts.st_mode))
    return unread(path + " is no regular file; name one whose first line is the secret");
  std::array<char, 1024> bytes{};
  const ssize_t size = ::read(file.get(), bytes.data(), bytes.size());
  if (size < 0) return unread(path + " cannot be read", errno);
  warnOfReaders(path, facts.st_mode);
  const std::string text(bytes.data(), static_cast<size_t>(size));
  std::string line = text.substr(0, text.find('\n'));
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (line.empty()) return unread("the first line of " + path + " is empty, and it is to be the secret");
  return line;
}

}  // namespace weft
