// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/inbox.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <linux/futex.h>
#include <map>
#include <mutex>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace softefa {

namespace {

constexpr uint32_t kFree = 0;
constexpr uint32_t kFull = 0xffffffffU;
constexpr std::chrono::milliseconds kStuck{50};  // before it is asked whether a slow producer still lives

uint64_t stateOf(uint64_t position, uint32_t mark) {
  return (position / kSlots) << 32 | mark;
}

std::string pathOf(const std::string& folder, uint32_t number) {
  return folder + "/" + std::to_string(number);
}

// Mappings of this process, by file. Never destroyed: threads of devices that nobody closed still use it at
// exit.
struct Mappings {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<Inbox>> known;
};

Mappings& mappings() {
  static Mappings* const kMappings = std::make_unique<Mappings>().release();
  return *kMappings;
}

bool sameFile(int file, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(file, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino;
}

void futexWait(std::atomic<uint32_t>& word, uint32_t value, std::chrono::microseconds time) {
  timespec limit{time.count() / 1000000, time.count() % 1000000 * 1000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

void futexWake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void fill(std::byte* target, std::span<const Piece> payload) {
  for (const Piece& piece : payload) {
    std::memcpy(target, piece.data(), piece.size());
    target += piece.size();
  }
}

// Whoever still writes into the file of a dead owner must see that it is over.
void markClosed(int file) {
  struct stat facts {};
  if (::fstat(file, &facts) != 0 || facts.st_size < static_cast<off_t>(sizeof(InboxMemory))) return;
  void* where = ::mmap(nullptr, sizeof(InboxMemory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (where == MAP_FAILED) return;
  static_cast<InboxMemory*>(where)->closed.store(1);
  ::munmap(where, sizeof(InboxMemory));
}

std::shared_ptr<Inbox> mapFile(int file, const std::string& path, uint32_t number, bool owned) {
  struct stat facts {};
  const std::lock_guard lock(mappings().mutex);
  if (::fstat(file, &facts) == 0 && facts.st_size == static_cast<off_t>(sizeof(InboxMemory))) {
    auto& known = mappings().known[{facts.st_dev, facts.st_ino}];
    auto inbox = known.lock();
    void* where = inbox ? MAP_FAILED
                        : ::mmap(nullptr, sizeof(InboxMemory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (where != MAP_FAILED) {
      known = inbox = std::make_shared<Inbox>(static_cast<InboxMemory*>(where), file, path, number, owned);
      return inbox;
    }
    ::close(file);
    return inbox;
  }
  ::close(file);
  return nullptr;
}

// A file of the right size at `path`, locked by us; zeros are an empty ring. -1 when another owns the path.
int lockedFile(const std::string& path) {
  const std::string fresh = path + "." + std::to_string(::getpid()) + "." + std::to_string(::gettid());
  const int old = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (old < 0) return -1;
  int file = -1;
  if (::flock(old, LOCK_EX | LOCK_NB) == 0 && sameFile(old, path)) {
    markClosed(old);
    file = ::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  }
  if (file >= 0 && (::flock(file, LOCK_EX | LOCK_NB) != 0 || ::ftruncate(file, sizeof(InboxMemory)) != 0 ||
                    ::rename(fresh.c_str(), path.c_str()) != 0)) {
    ::unlink(fresh.c_str());
    ::close(file);
    file = -1;
  }
  ::close(old);
  return file;
}

}  // namespace

Inbox::Inbox(InboxMemory* memory, int file, std::string path, uint32_t number, bool owned)
    : memory_(memory),
      file_(file),
      path_(std::move(path)),
      number_(number),
      owned_(owned),
      process_(static_cast<uint32_t>(::getpid())) {}

Inbox::~Inbox() {
  ::munmap(memory_, sizeof(InboxMemory));
  ::close(file_);
}

std::shared_ptr<Inbox> Inbox::own(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (uint32_t number = 0; number < kInboxes; ++number) {
    const std::string path = pathOf(folder, number);
    const int file = lockedFile(path);
    if (file < 0) continue;
    return mapFile(file, path, number, true);
  }
  return nullptr;
}

std::shared_ptr<Inbox> Inbox::peer(const std::string& folder, uint32_t number) {
  const std::string path = pathOf(folder, number);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  return file < 0 ? nullptr : mapFile(file, path, number, false);
}

bool Inbox::put(const PacketHeader& header, std::span<const Piece> payload) {
  for (;;) {
    uint64_t position = memory_->tail.load();
    InboxSlot& slot = memory_->slots[position % kSlots];
    uint64_t state = slot.state.load();
    if (state == stateOf(position, kFree)) {
      const uint64_t full = stateOf(position, kFull);
      if (!slot.state.compare_exchange_strong(state, stateOf(position, process_))) continue;
      memory_->tail.compare_exchange_strong(position, position + 1);
      slot.header = header;
      fill(slot.payload, payload);
      slot.state.store(full);
      wake();
      return true;
    }
    if (state >> 32 < position / kSlots) return false;  // the ring is full
    // Another's, and it has not come to say so.
    memory_->tail.compare_exchange_strong(position, position + 1);
  }
}

void Inbox::abandonSlot() {
  const uint64_t position = memory_->tail.load();
  uint64_t state = stateOf(position, kFree);
  memory_->slots[position % kSlots].state.compare_exchange_strong(
      state, stateOf(position, static_cast<uint32_t>(::getpid())));
}

void Inbox::ring() {
  memory_->bell.fetch_add(1);
  futexWake(memory_->bell);
}

void Inbox::wake() {
  if (memory_->sleeping.load() != 0) ring();
}

bool Inbox::ownerAnswers() const {
  if (memory_->silent.load() != 0) return false;
  if (owned_) return true;
  if (::flock(file_, LOCK_SH | LOCK_NB) != 0)
    return true;  // its owner holds the lock for as long as it lives
  ::flock(file_, LOCK_UN);
  return false;
}

const InboxSlot* Inbox::front() {
  const uint64_t position = memory_->head.load(std::memory_order_relaxed);
  InboxSlot& slot = memory_->slots[position % kSlots];
  const uint64_t state = slot.state.load();
  if (state == stateOf(position, kFull)) return &slot;
  if (state != stateOf(position, kFree)) skipIfDead(slot, position, state);
  return nullptr;
}

void Inbox::pop() {
  const uint64_t position = memory_->head.load(std::memory_order_relaxed);
  memory_->head.store(position + 1, std::memory_order_relaxed);
  memory_->slots[position % kSlots].state.store(stateOf(position + kSlots, kFree));
}

// A producer that died between taking the slot and filling it would keep everything behind it from arriving.
void Inbox::skipIfDead(InboxSlot& slot, uint64_t position, uint64_t state) {
  const auto now = std::chrono::steady_clock::now();
  if (stuckAt_ != position) {
    stuckAt_ = position;
    stuckSince_ = now;
  }
  if (now - stuckSince_ < kStuck) return;
  const auto producer = static_cast<pid_t>(state & 0xffffffffU);
  if (::kill(producer, 0) == 0 || errno != ESRCH) return;
  if (slot.state.load() == state) pop();
}

// Is there a packet to take? For the owner's other threads too, while one of them takes.
bool Inbox::waiting() const {
  const uint64_t position = memory_->head.load();
  return memory_->slots[position % kSlots].state.load() == stateOf(position, kFull);
}

void Inbox::sleep(uint32_t bell, std::chrono::microseconds time) {
  memory_->sleeping.store(1);
  if (!waiting() && time.count() > 0) futexWait(memory_->bell, bell, time);
  memory_->sleeping.store(0);
}

void Inbox::close() {
  memory_->closed.store(1);
  if (sameFile(file_, path_)) ::unlink(path_.c_str());
  ::flock(file_, LOCK_UN);
}

}  // namespace softefa
