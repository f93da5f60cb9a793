// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/crypto/protection.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fd.h"
#include "src/base/log.h"

// The job's secret from its file.
namespace weft {

namespace {

constexpr size_t kLeastBytes = 16;
constexpr size_t kMostBytes = 4096;

Error badSecret(const std::string& detail, int errnum = 0) {
  return Error(Code::config, "reading WEFT_SECRET", detail, errnum);
}

// A file that others can read is no secret on a host that others use, which the user is told.
Status checkFile(int fd, const std::string& path) {
  struct stat about {};
  if (::fstat(fd, &about) != 0) return badSecret(path, errno);
  if (!S_ISREG(about.st_mode))
    return badSecret(path + " is no regular file; name a file that holds the secret");
  if ((about.st_mode & S_IROTH) != 0)
    WEFT_LOG(warn, "every user of this host can read the job's secret in %s (WEFT_SECRET); chmod o-r it",
             path.c_str());
  return {};
}

// The bytes of the file without the ends of its last line.
Result<Bytes> readSecret(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return badSecret(path + " cannot be opened", errno);
  TRY(checkFile(fd.get(), path));
  Bytes bytes(kMostBytes + 1);
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(fd.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return badSecret(path + " cannot be read", errno);
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  bytes.resize(have);
  while (!bytes.empty() && (bytes.back() == std::byte{'\n'} || bytes.back() == std::byte{'\r'}))
    bytes.pop_back();
  return bytes;
}

Result<Key256> jobSecretOf(const std::string& setting) {
  if (!setting.starts_with('@') || setting.size() == 1)
    return badSecret(
        "it takes @FILE, a file with 16 random bytes or more (head -c 32 /dev/urandom | base64 > FILE); the "
        "environment itself is no place for a secret");
  const std::string path = setting.substr(1);
  TRY(Bytes bytes, readSecret(path));
  if (bytes.size() < kLeastBytes || bytes.size() > kMostBytes)
    return badSecret(format("%s holds %zu bytes%s; allowed: %zu to %zu", path.c_str(), bytes.size(),
                            bytes.size() > kMostBytes ? " or more" : "", kLeastBytes, kMostBytes));
  const Key256 key = derivedKey({}, bytes, "weft job secret");
  wipe(bytes);
  return key;
}

}  // namespace

Key256 Protection::keyFor(std::span<const std::byte> secret, std::string_view purpose) const {
  return derivedKey(jobSecret ? std::span<const std::byte>(*jobSecret) : std::span<const std::byte>(), secret,
                    purpose);
}

Result<Protection> readProtection(const Config& config) {
  Protection out;
  if (config.encrypt == "off") {
    out.encrypt = Protection::Encrypt::off;
  } else if (config.encrypt == "all") {
    out.encrypt = Protection::Encrypt::all;
  } else if (config.encrypt != "control") {
    return Error(Code::config, "reading settings",
                 "WEFT_ENCRYPT is \"" + config.encrypt + "\"; allowed: off, control or all");
  }
  if (config.jobSecret.empty()) return out;
  TRY(out.jobSecret, jobSecretOf(config.jobSecret));
  return out;
}

}  // namespace weft
