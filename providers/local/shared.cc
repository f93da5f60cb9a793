// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/shared.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/random.h"

// Making, finding and locking inboxes (memfd_create(2), fcntl(2)).
namespace weft::local {

namespace {

constexpr const char* kMaking = "making shared memory";
// No peer's truncation can make an access fault.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Error refused(const std::string& why, int error = 0) {
  return Error(Code::unavailable, "looking for a peer on this host", why, error);
}

struct flock wholeFile() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

Result<Fd> opened(const std::string& path, int flags) {
  Fd fd(::open(path.c_str(), flags | O_CLOEXEC));
  if (!fd && (errno == EMFILE || errno == ENFILE))
    return Error(Code::resources, "looking for a peer on this host", path, errno);
  if (!fd) return refused(path + " cannot be opened", errno);
  fd.closeInForkedChildren();
  return fd;
}

std::string pathOfOwn(const Fd& fd) {
  return format("/proc/self/fd/%d", fd.get());
}

// True: this process has that number in the PID namespace whose /proc is mounted, which is where numbers are
// looked up.
bool isOwnNumber(int32_t pid) {
  std::array<char, 16> text{};
  const ssize_t length = ::readlink("/proc/self", text.data(), text.size() - 1);
  return length > 0 && std::to_string(pid) == text.data();
}

}  // namespace

// A forked child is another process, although its memory says the same.
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

// A forked child has no such mapping, and another mapping may be at that address there.
SharedInbox::~SharedInbox() {
  if (inbox_ && !inForkedChild()) ::munmap(inbox_, sizeof *inbox_);
}

Status SharedInbox::map(const Fd& by) {
  void* at = ::mmap(nullptr, sizeof(Inbox), PROT_READ | PROT_WRITE, MAP_SHARED, by.get(), 0);
  if (at == MAP_FAILED) return Error(Code::resources, "mapping an inbox", "shared memory", errno);
  (void)::madvise(at, sizeof(Inbox), MADV_DONTFORK);
  inbox_ = static_cast<Inbox*>(at);  // a fresh inbox is all zeros, which is its beginning
  return {};
}

// The lock by which peers see that this process lives. A lock of the process (F_SETLK) would go as soon as
// anything in the process closes any descriptor of the file. A lock of the open file description
// (F_OFD_SETLK, fcntl(2)) stays. But a forked child shares the description with every descriptor that it
// inherits, and would keep a dead parent alive. So the lock belongs to a description that only our mapping
// holds. No child inherits the mapping (MADV_DONTFORK), and the kernel removes it when this process ends or
// becomes another program.
Status SharedInbox::mapLocked() {
  TRY(const Fd second, opened(pathOfOwn(fd_), O_RDWR));
  struct flock lock = wholeFile();
  if (::fcntl(second.get(), F_OFD_SETLK, &lock) != 0)
    return Error(Code::system, kMaking, "locking it, by which a peer sees that we live", errno);
  return map(second);
}

Result<SharedInbox> SharedInbox::create(const Nonce& nonce) {
  SharedInbox made;
  made.fd_ = Fd(::memfd_create("weft-local", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made.fd_) {
    const bool full = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return Error(full ? Code::resources : Code::unavailable, kMaking, "memfd_create", errno);
  }
  made.fd_.closeInForkedChildren();
  if (::ftruncate(made.fd(), sizeof(Inbox)) != 0 || ::fcntl(made.fd(), F_ADD_SEALS, kSeals) != 0)
    return Error(Code::system, kMaking, "giving it its size", errno);
  TRY(made.mapLocked());
  made->label.version = kVersion;
  made->label.bytes = sizeof(Inbox);
  made->label.nonce = nonce;
  made->label.magic = kMagic;
  return made;
}

// The number may belong to any file of any process. This process itself is not looked into unless it is the
// owner: with a peer of another PID namespace, the peer's number can be ours, and opening and closing a file
// of the application takes away the locks that the application holds on it. The file of any other process is
// looked at (O_PATH) before it is opened, and everything in it is checked before it is believed.
Result<SharedInbox> SharedInbox::find(const Whereabouts& where) {
  const std::string path = format("/proc/%d/fd/%d", where.pid, where.fd);
  if (isOwnNumber(where.pid) && !equalSecret(where.process, processNonce()))
    return refused(format("process %d is this one here: the peer's PID namespace is another one", where.pid));
  TRY(const Fd place, opened(path, O_PATH));
  struct stat file {};
  if (::fstat(place.get(), &file) != 0 || !S_ISREG(file.st_mode) || file.st_size != sizeof(Inbox))
    return refused(path + " is something else here");
  SharedInbox found;
  TRY(found.fd_, opened(pathOfOwn(place), O_RDWR | O_NONBLOCK | O_NOCTTY));
  if (::fcntl(found.fd(), F_GET_SEALS) != kSeals) return refused(path + " is something else here");
  TRY(found.map(found.fd_));
  const auto& label = found->label;
  if (label.magic != kMagic || label.version != kVersion || label.bytes != sizeof(Inbox))
    return refused(path + " is of another version of weft, or of something else");
  if (!equalSecret(label.nonce, where.nonce)) return refused(path + " has another nonce in it");
  return found;
}

// The lock belongs to another description than our own descriptor's, also where the owner is this process. So
// F_OFD_GETLK reports it.
bool SharedInbox::ownerLives() const {
  struct flock lock = wholeFile();
  return ::fcntl(fd(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace weft::local
