// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/shared.h"

#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "src/base/log.h"
#include "src/base/random.h"

namespace weft::local {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;  // so that no peer's touch can fault

Error refused(const std::string& why, int error = 0) {
  return Error(Code::unavailable, "looking for a peer on this host", why, error);
}

struct flock wholeFile() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

// A forked child is another process, though its memory says the same.
Nonce processNonce() {
  static std::mutex mutex;
  static Nonce nonce;
  static pid_t of = 0;
  const std::lock_guard lock(mutex);
  if (of != ::getpid()) fillRandom(nonce);
  of = ::getpid();
  return nonce;
}

SharedInbox::SharedInbox(SharedInbox&& other) noexcept
    : fd_(std::move(other.fd_)), inbox_(std::exchange(other.inbox_, nullptr)) {}

SharedInbox& SharedInbox::operator=(SharedInbox&& other) noexcept {
  std::swap(inbox_, other.inbox_);
  std::swap(fd_, other.fd_);
  return *this;
}

SharedInbox::~SharedInbox() {
  if (inbox_) ::munmap(inbox_, sizeof *inbox_);
}

Status SharedInbox::map() {
  void* at = ::mmap(nullptr, sizeof(Inbox), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (at == MAP_FAILED) return Error(Code::resources, "mapping an inbox", "shared memory", errno);
  (void)::madvise(at, sizeof(Inbox), MADV_DONTFORK);
  inbox_ = static_cast<Inbox*>(at);  // all zeros where it is fresh, which is how it begins
  return {};
}

Result<SharedInbox> SharedInbox::create(const Nonce& nonce) {
  constexpr const char* kMaking = "making shared memory";
  SharedInbox made;
  made.fd_ = Fd(::memfd_create("weft-local", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made.fd_) {
    const bool full = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return Error(full ? Code::resources : Code::unavailable, kMaking, "memfd_create", errno);
  }
  made.fd_.closeInForkedChildren();
  if (::ftruncate(made.fd(), sizeof(Inbox)) != 0 || ::fcntl(made.fd(), F_ADD_SEALS, kSeals) != 0)
    return Error(Code::system, kMaking, "giving it its size", errno);
  struct flock lock = wholeFile();
  if (::fcntl(made.fd(), F_SETLK, &lock) != 0)
    return Error(Code::system, kMaking, "locking it, by which a peer sees that we live", errno);
  TRY(made.map());
  made->label.version = kVersion;
  made->label.bytes = sizeof(Inbox);
  made->label.nonce = nonce;
  made->label.magic = kMagic;
  return made;
}

// Everything is looked at before it is believed: the number may be that of any file of any process.
Result<SharedInbox> SharedInbox::find(const Whereabouts& where) {
  const std::string path = format("/proc/%d/fd/%d", where.pid, where.fd);
  SharedInbox found;
  found.fd_ = Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!found.fd_) {
    const bool full = errno == EMFILE || errno == ENFILE;
    if (full) return Error(Code::resources, "looking for a peer on this host", path, errno);
    return refused(path + " cannot be opened", errno);
  }
  found.fd_.closeInForkedChildren();
  struct stat file {};
  if (::fstat(found.fd(), &file) != 0 || !S_ISREG(file.st_mode) || file.st_size != sizeof(Inbox) ||
      ::fcntl(found.fd(), F_GET_SEALS) != kSeals)
    return refused(path + " is something else here");
  TRY(found.map());
  const auto& label = found->label;
  if (label.magic != kMagic || label.version != kVersion || label.bytes != sizeof(Inbox))
    return refused(path + " is of another version of weft, or of something else");
  if (!equalSecret(label.nonce, where.nonce)) return refused(path + " has another nonce in it");
  return found;
}

bool SharedInbox::ownerLives() const {
  struct flock lock = wholeFile();
  return ::fcntl(fd(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace weft::local
