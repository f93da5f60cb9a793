// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/stats/stats_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "src/base/advice.h"
#include "src/base/log.h"
#include "src/base/presence.h"
#include "src/base/process.h"
#include "src/stats/job.h"

namespace weft::stats {

namespace {

constexpr int kMostFiles = 16;     // of one process, and of dead ones that had its number
constexpr uint32_t kOverKept = 8;  // comms that are over and can still be looked at one by one
constexpr size_t kHeadBytes = offsetof(CommLine, records);

template <size_t N>
void write(Text<N>* to, const std::string& text) {
  to->fill(0);
  std::copy_n(text.data(), std::min(text.size(), N - 1), to->data());
}

void note(Moment* moment) {
  const uint64_t now = realtimeNow();
  moment->ticks.set(ticks());
  moment->realtime.set(now);
}

// What `from` counted. Both are of one process, so their ticks are of one clock.
void addCounts(const CommLine& from, CommLine* to) {
  to->posted.add(from.posted.get());
  to->done.add(from.posted.get());  // nothing of it is in flight any more
  for (const auto count : {&CommLine::busy, &CommLine::waited, &CommLine::waits, &CommLine::registrations,
                           &CommLine::checked, &CommLine::corrupt})
    (to->*count).add((from.*count).get());
  for (const OneSidedField& field : kOneSidedFields)
    (to->oneSided.*field.counted).add((from.oneSided.*field.counted).get());
  for (size_t i = 0; i < kWays; i++) to->ways[i].add(from.ways[i].get());
  for (size_t i = 0; i < kSizeClasses; i++) {
    to->sizes[i].messages.add(from.sizes[i].messages.get());
    to->sizes[i].bytes.add(from.sizes[i].bytes.get());
    to->sizes[i].timed.add(from.sizes[i].timed.get());
    to->sizes[i].ticks.add(from.sizes[i].ticks.get());
  }
  for (size_t i = 0; i < kBuckets; i++) to->latency[i].add(from.latency[i].get());
}

// Records that nobody wrote are not touched: that would give them memory.
void clear(CommLine* line) {
  const size_t records = std::min<uint64_t>(line->posted.get(), kRecords);
  std::memset(static_cast<void*>(&line->state), 0, kHeadBytes - sizeof line->sequence);
  std::memset(static_cast<void*>(line->records.data()), 0, records * sizeof(Record));
}

bool isIn(const CommLine& line, LineState state) {
  return static_cast<LineState>(line.state.get()) == state;
}

Error noFile(const std::string& what, int error) {
  return Error(Code::system, "counting",
               what + ": " + errnoText(error) +
                   "; the job goes on without counters, or give WEFT_STATE_DIR a folder with room");
}

}  // namespace

Result<std::unique_ptr<StatsFile>> StatsFile::create(const std::string& folder) {
  auto made = std::make_unique<StatsFile>(Key{});
  TRY(made->open(folder));
  const Presence self = Presence::ofThisProcess();
  Header& header = *made->header_;
  header.version = kVersion;
  header.headerBytes = sizeof(Header);
  header.lineBytes = sizeof(CommLine);
  header.comms = kMostComms;
  header.pid = self.pid;
  header.started = self.started;
  write(&header.world, self.world);
  write(&header.place, self.place);
  write(&header.host, hostName());
  write(&header.job, jobName());
  note(&header.begun);
  note(&header.beat);
  std::atomic_thread_fence(std::memory_order_release);
  header.magic = kMagic;  // last: a reader does not look at one without it
  return made;
}

Status StatsFile::open(const std::string& folder) {
  if (folder.empty()) {
    file_ = Fd(::memfd_create(kMemfdName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file_) return noFile("memory to share", errno);
    (void)::fchmod(file_.get(), 0600);
    if (::ftruncate(file_.get(), kFileBytes) != 0) return noFile("memory to share", errno);
    // A store behind the end of a file that somebody cut off would be a signal.
    (void)::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
  } else {
    const std::string stem = folder + "/" + hostName() + "." + std::to_string(::getpid());
    for (int i = 0; i < kMostFiles && !file_; i++) {
      path_ = stem + (i > 0 ? "-" + std::to_string(i) : "") + kFileEnding;
      file_ = Fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (!file_ && errno != EEXIST) break;
    }
    if (!file_) return noFile(std::exchange(path_, {}), errno);
    if (::fallocate(file_.get(), 0, 0, sizeof(Header) + sizeof(CommLine)) != 0) return noFile(path_, errno);
    if (::ftruncate(file_.get(), kFileBytes) != 0) return noFile(path_, errno);
  }
  void* at = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (at == MAP_FAILED) return noFile("mapping counters", errno);
  header_ = static_cast<Header*>(at);
  lines_ = reinterpret_cast<CommLine*>(static_cast<std::byte*>(at) + sizeof(Header));
  return {};
}

StatsFile::~StatsFile() {
  if (header_) ::munmap(header_, kFileBytes);
  if (!path_.empty() && !failed_) (void)::unlink(path_.c_str());
}

CommLine* StatsFile::fresh(size_t bytes) {
  if (used_ == kMostComms) return nullptr;
  const auto offset = static_cast<off_t>(sizeof(Header) + used_ * sizeof(CommLine));
  if (!path_.empty() && ::fallocate(file_.get(), 0, offset, static_cast<off_t>(bytes)) != 0) {
    static std::atomic<bool> said{false};
    if (!said.exchange(true))
      WEFT_LOG(warn, "%s: %s; the job goes on without the counters of some of its connections", path_.c_str(),
               errnoText(errno).c_str());
    return nullptr;
  }
  return &lines_[used_++];
}

CommLine* StatsFile::nextIn(LineState state) {
  for (uint32_t i = 0; i < used_; i++) {
    CommLine& line = lines_[turn_++ % used_];
    if (isIn(line, state)) return &line;
  }
  return nullptr;
}

// Of a comm that is over, once there are some of those; else a line that nobody had before. What failed is
// evidence, and goes last.
CommLine* StatsFile::find() {
  CommLine* line = over_ >= kOverKept ? nextIn(LineState::over) : nullptr;
  if (!line) line = fresh(sizeof(CommLine));
  if (!line) line = nextIn(LineState::over);
  return line ? line : nextIn(LineState::failed);
}

// The sums that a line's counts belong to. Null: there is no room for them.
CommLine* StatsFile::earlierLike(const CommLine& line) {
  for (uint32_t i = 0; i < used_; i++)
    if (isIn(lines_[i], LineState::earlier) && lines_[i].sends.get() == line.sends.get() &&
        lines_[i].device == line.device)
      return &lines_[i];
  CommLine* made = fresh(kHeadBytes);
  if (!made) return nullptr;
  made->sequence.set(1);
  std::atomic_thread_fence(std::memory_order_release);
  made->sends.set(line.sends.get());
  made->device = line.device;
  made->state.set(static_cast<uint32_t>(LineState::earlier));
  std::atomic_thread_fence(std::memory_order_release);
  made->sequence.set(2);
  return made;
}

// The line's counts go on in other places, and the line is empty.
void StatsFile::retire(CommLine* line) {
  if (isIn(*line, LineState::over)) over_--;
  if (keeps_) kept_.add(*line, nanosecondsOfTick());
  if (CommLine* sums = earlierLike(*line)) addCounts(*line, sums);
  clear(line);
}

CommLine* StatsFile::take(uint32_t number, bool sends, const std::string& device, const std::string& peer) {
  const std::lock_guard lock(mutex_);
  CommLine* line = find();
  if (!line) {
    header_->leftOut.add(1);
    return nullptr;
  }
  const uint32_t sequence = line->sequence.get();
  line->sequence.set(sequence + 1);
  std::atomic_thread_fence(std::memory_order_release);
  if (sequence != 0) retire(line);
  line->number.set(number);
  line->sends.set(sends ? 1 : 0);
  write(&line->device, device);
  write(&line->peer, peer);
  line->state.set(static_cast<uint32_t>(LineState::live));
  std::atomic_thread_fence(std::memory_order_release);
  line->sequence.set(sequence + 2);
  return line;
}

void StatsFile::give(CommLine* line, bool failed) {
  if (!line) return;
  const std::lock_guard lock(mutex_);
  failed_ = failed_ || failed;
  over_ += failed ? 0 : 1;
  line->state.set(static_cast<uint32_t>(failed ? LineState::failed : LineState::over));
}

// By two moments of which both clocks are known.
double StatsFile::nanosecondsOfTick() const {
  const uint64_t ticksNow = ticks();
  const uint64_t real = realtimeNow();
  const uint64_t ticksThen = header_->begun.ticks.get();
  const uint64_t realThen = header_->begun.realtime.get();
  if (ticksNow <= ticksThen || real <= realThen) return 1;
  return static_cast<double>(real - realThen) / static_cast<double>(ticksNow - ticksThen);
}

void StatsFile::addTo(ProfileSums* sums) {
  const std::lock_guard lock(mutex_);
  const double each = nanosecondsOfTick();
  sums->addAll(kept_);
  for (uint32_t i = 0; i < used_; i++)
    if (!isIn(lines_[i], LineState::earlier)) sums->add(lines_[i], each);  // those are in kept_
  sums->leftOut += header_->leftOut.get();
}

void StatsFile::beat() {
  const std::lock_guard lock(mutex_);
  note(&header_->beat);
}

}  // namespace weft::stats
