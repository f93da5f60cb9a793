// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/reader.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <set>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

#include "src/base/advice.h"
#include "src/base/fd.h"
#include "src/base/number.h"
#include "src/base/printable.h"
#include "src/base/process.h"
#include "src/base/shared_folder.h"
#include "tools/stats/writer.h"

namespace weft::counted {

namespace {

namespace fs = std::filesystem;

constexpr int kTries = 4;                // of a line that changes hands
constexpr size_t kMostOfFolder = 16384;  // files
constexpr size_t kMostOfProcess = 16;
constexpr size_t kHeadBytes = offsetof(stats::CommLine, records);
constexpr size_t kFrontBytes = offsetof(stats::CommLine, reason);

template <size_t N>
std::string textOf(const stats::Text<N>& text) {
  return printable(
      {text.data(), static_cast<size_t>(std::find(text.begin(), text.end(), '\0') - text.begin())});
}

bool readAt(const Fd& file, void* to, size_t bytes, size_t offset) {
  return ::pread(file.get(), to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

// Ticks of the process that wrote, in nanoseconds: by two moments of which it noted both. The moments may be
// anything: a scale that no clock has is none, and a span ends at 146 years.
class Scale {
  static constexpr double kLeast = 1e-3, kMost = 1e4;  // nanoseconds of a tick
  static constexpr uint64_t kLongest = uint64_t{1} << 62;

 public:
  Scale(const stats::Header& header, bool alive)
      : ticks_(header.begun.ticks.get()), real_(header.begun.realtime.get()) {
    end_ = alive ? stats::ticks() : header.beat.ticks.get();
    const uint64_t realEnd = alive ? stats::realtimeNow() : header.beat.realtime.get();
    constexpr uint64_t kEnough = 1'000'000;
    if (end_ <= ticks_ || realEnd <= real_ || realEnd - real_ <= kEnough) return;
    const double each = static_cast<double>(realEnd - real_) / static_cast<double>(end_ - ticks_);
    if (each > kLeast && each < kMost) each_ = each;
  }
  uint64_t span(uint64_t ticks) const {
    constexpr auto kLargest = static_cast<double>(kLongest);
    const double nanoseconds = static_cast<double>(ticks) * each_;
    return nanoseconds < kLargest ? static_cast<uint64_t>(nanoseconds) : kLongest;
  }
  uint64_t time(uint64_t ticks) const {
    if (ticks == 0) return 0;
    return ticks >= ticks_ ? std::min(real_, kLongest) + span(ticks - ticks_) : real_;
  }
  uint64_t since(uint64_t ticks) const { return ticks != 0 && end_ > ticks ? span(end_ - ticks) : 0; }

 private:
  uint64_t ticks_, real_, end_ = 0;
  double each_ = 1;
};

void addTraffic(const stats::CommLine& line, const Scale& scale, Comm* comm) {
  for (size_t i = 0; i < stats::kSizeClasses; i++) {
    comm->messages += comm->sizeMessages[i] = line.sizes[i].messages.get();
    comm->bytes += comm->sizeBytes[i] = line.sizes[i].bytes.get();
    comm->sizeTimed[i] = line.sizes[i].timed.get();
    comm->sizeTime[i] = scale.span(line.sizes[i].ticks.get());
  }
  for (size_t i = 0; i < stats::kWays; i++) comm->ways[i] = line.ways[i].get();
  for (uint32_t i = 0; i < stats::kBuckets; i++)
    if (const uint32_t count = line.latency[i].get(); count > 0)
      comm->latency.push_back({scale.span(stats::bucketBegin(i + 1)), count});
}

Comm commOf(const stats::CommLine& line, const Scale& scale) {
  Comm comm;
  comm.number = line.number.get();
  comm.sends = line.sends.get() != 0;
  comm.state = static_cast<stats::LineState>(line.state.get());
  comm.device = textOf(line.device);
  comm.peer = comm.state == stats::LineState::earlier ? "earlier connections" : textOf(line.peer);
  comm.remote = line.remote.get();
  comm.peerState = static_cast<stats::PeerState>(line.peerState.get());
  comm.failedAt = scale.time(line.failedAt.get());
  if (comm.failedAt != 0) comm.reason = textOf(line.reason);
  comm.done = line.done.get();
  comm.posted = line.posted.get();
  const bool live = comm.state == stats::LineState::live;
  comm.busy = scale.span(line.busy.get()) + (live ? scale.since(line.busySince.get()) : 0);
  comm.waited = scale.span(line.waited.get()) + (live ? scale.since(line.waitsSince.get()) : 0);
  comm.waits = line.waits.get();
  comm.waitsSince = scale.time(line.waitsSince.get());
  comm.waitTag = line.waitTag.get();
  comm.waitK = line.waitK.get();
  comm.waitBytes = line.waitBytes.get();
  comm.lanes = line.lanes.get();
  comm.lanesUp = line.lanesUp.get();
  comm.mayIdle = line.mayIdle.get() != 0;
  comm.registrations = line.registrations.get();
  comm.segmentsAgain = line.segmentsAgain.get();
  comm.bytesAgain = line.bytesAgain.get();
  comm.lanesLeft = line.lanesLeft.get();
  comm.lanesRevived = line.lanesRevived.get();
  comm.checked = line.checked.get();
  comm.corrupt = line.corrupt.get();
  comm.oneSided = stats::sumOf(line.oneSided);
  addTraffic(line, scale, &comm);
  return comm;
}

// Copies of a line, one after the other. A copy takes the words of a line in any order, so of two words whose
// order counts the later one is taken from a later copy.
struct Copies {
  stats::CommLine before, line, later, after;  // all but `line` only as far as is asked for
};

// A request whose number changed under the copies is left out.
void addRequests(const Copies& copies, const Scale& scale, Comm* comm) {
  for (size_t i = 0; i < stats::kRecords; i++) {
    const stats::Record& record = copies.line.records[i];
    const stats::Record& later = copies.later.records[i];
    const uint64_t number = copies.before.records[i].number.get();
    if (number == 0 || number != copies.after.records[i].number.get()) continue;
    const uint64_t first = (record.way.get() & stats::kCameInParts) != 0 ? later.first.get() : 0;
    comm->requests.push_back({number, scale.time(record.posted.get()), scale.time(record.told.get()),
                              scale.time(first), scale.time(record.done.get()), record.tag.get(),
                              record.k.get(), later.bytes.get(),
                              static_cast<stats::Way>(later.way.get() & 7)});
  }
  std::sort(comm->requests.begin(), comm->requests.end(),
            [](const Request& a, const Request& b) { return a.number < b.number; });
}

// The next copy is no older than this one.
bool copyNext(const Fd& file, size_t offset, size_t bytes, void* to) {
  const bool copied = readAt(file, to, bytes, offset);
  std::atomic_thread_fence(std::memory_order_acquire);
  return copied;
}

bool copyLine(const Fd& file, size_t offset, bool requests, Copies* copies) {
  constexpr size_t kAll = sizeof(stats::CommLine);
  return copyNext(file, offset, requests ? kAll : kFrontBytes, &copies->before) &&
         copyNext(file, offset, requests ? kAll : kHeadBytes, &copies->line) &&
         (!requests ||
          (copyNext(file, offset, kAll, &copies->later) && copyNext(file, offset, kAll, &copies->after)));
}

// False: it is not used, or changed hands each time.
bool readLine(const Fd& file, size_t offset, bool requests, Copies* copies) {
  for (int i = 0; i < kTries; i++) {
    uint32_t sequence = 0, again = 0;
    if (!copyNext(file, offset, sizeof sequence, &sequence) || sequence == 0) return false;
    if (!copyLine(file, offset, requests, copies)) return false;
    if (!copyNext(file, offset, sizeof again, &again)) return false;
    if (sequence % 2 != 0 || again != sequence) continue;
    copies->line.failedAt.set(copies->before.failedAt.get());  // its reason is in the second copy
    return true;
  }
  return false;
}

bool isOurs(const stats::Header& header) {
  return header.version == stats::kVersion && header.headerBytes == sizeof(stats::Header) &&
         header.lineBytes == sizeof(stats::CommLine) && header.comms <= stats::kMostComms;
}

// Empty: its header is there, is of this version, and is believed.
std::string whyUnread(const SharedFolder::File& file, stats::Header* header) {
  if (file.error == ENOENT) return "it has gone";
  if (file.error == EACCES || file.error == EPERM)
    return errnoText(file.error) + "; read it as that user, or as root";
  if (!file.fd) return sharedFileWords(file.error);
  if (!readAt(file.fd, header, sizeof *header, 0) || header->magic != stats::kMagic)
    return "it has no counters in it, or not yet";
  if (!isOurs(*header))
    return "another version of weft wrote it (layout " + std::to_string(header->version) +
           ", this one reads layout " + std::to_string(stats::kVersion) + "); use the weft of that job";
  return {};
}

bool isGone(ProcessState state) {
  return state == ProcessState::gone;
}

struct Found {
  std::vector<Process> processes;
  std::vector<std::string> unread;
};

// `pid`: of the process that has it open; 0: not known.
Process processOf(const SharedFolder::File& file, const stats::Header& header, int64_t pid) {
  Process process;
  process.presence = {header.pid, header.started, textOf(header.world), textOf(header.place)};
  process.user = file.facts.st_uid;
  if (const auto known = knownAs(process.presence, pid)) process.presence = *known;
  process.host = process.presence.world == processWorld() ? printable(hostName()) : textOf(header.host);
  process.job = textOf(header.job);
  process.state = stateOf(process.presence);
  process.begun = header.begun.realtime.get();
  process.beat = header.beat.realtime.get();
  process.leftOut = header.leftOut.get();
  const bool here = !isGone(process.state) && process.state != ProcessState::unknown;
  process.now = here ? stats::realtimeNow() : process.beat;
  return process;
}

void readFile(const SharedFolder::File& file, const std::string& path, int64_t pid, bool requests,
              Found* found) {
  const auto header = std::make_unique<stats::Header>();
  std::string why = whyUnread(file, header.get());
  if (why.empty())
    why = whyNotBelieved({header->pid, header->started, textOf(header->world), {}}, file.facts.st_uid);
  if (!why.empty()) {
    found->unread.push_back(printable(path) + ": " + why);
    return;
  }
  Process process = processOf(file, *header, pid);
  process.file = path;
  const Scale scale(*header, !isGone(process.state) && process.state != ProcessState::unknown);
  auto copies = std::make_unique<Copies>();
  for (uint32_t i = 0; i < header->comms; i++) {
    if (!readLine(file.fd, sizeof *header + i * sizeof copies->line, requests, copies.get())) continue;
    process.comms.push_back(commOf(copies->line, scale));
    if (requests) addRequests(*copies, scale, &process.comms.back());
  }
  found->processes.push_back(std::move(process));
}

// The counters of one process, by its open files: those of a memfd, or in whatever folder.
// `seen`: a child that forked, and a process of another number in another container, have the same file.
using Seen = std::set<std::pair<dev_t, ino_t>>;
void readProcess(int64_t pid, bool requests, Seen* seen, Found* found) {
  const fs::path folder = "/proc/" + std::to_string(pid) + "/fd";
  std::error_code ignored;
  size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    std::error_code unreadable;
    const std::string target = fs::read_symlink(entry.path(), unreadable).string();
    const bool memory = target.starts_with(std::string("/memfd:") + stats::kMemfdName);
    if (unreadable || (!memory && !target.ends_with(stats::kFileEnding))) continue;
    const SharedFolder::File file = openOfProcess(entry.path().string());
    if (file.fd && !seen->insert({file.facts.st_dev, file.facts.st_ino}).second) continue;
    if (++files > kMostOfProcess) return;
    readFile(file, entry.path().string(), pid, requests, found);
  }
}

std::vector<int64_t> allProcesses() {
  std::vector<int64_t> all;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored))
    if (const auto pid = parseNumber<int64_t>(entry.path().filename().string())) all.push_back(*pid);
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

uint64_t Comm::quantile(double share) const {
  uint64_t all = 0;
  for (const Bucket& bucket : latency) all += bucket.count;
  uint64_t below = 0;
  for (const Bucket& bucket : latency) {
    below += bucket.count;
    if (static_cast<double>(below) >= share * static_cast<double>(all)) return bucket.upTo;
  }
  return 0;
}

namespace {

Found findIn(const Where& where) {
  Found found;
  if (!where.folder.empty()) {
    const SharedFolder folder(where.folder);
    std::vector<std::string> names = folder.names(stats::kFileEnding);
    if (names.size() > kMostOfFolder) {
      found.unread.push_back(where.folder + ": " + std::to_string(names.size() - kMostOfFolder) +
                             " of its files are left out; name processes, or remove what jobs left there");
      names.resize(kMostOfFolder);
    }
    for (const std::string& name : names)
      readFile(folder.read(name), where.folder + "/" + name, 0, where.requests, &found);
    return found;
  }
  Seen seen;
  for (const int64_t pid : where.pids.empty() ? allProcesses() : where.pids)
    readProcess(pid, where.requests, &seen, &found);
  return found;
}

}  // namespace

std::vector<Process> read(const Where& where, std::vector<std::string>* unread) {
  Found found = findIn(where);
  if (unread) *unread = std::move(found.unread);
  return std::move(found.processes);
}

std::vector<Process> withoutDoubles(std::vector<Process> processes) {
  const auto runs = [](const Process& one) {
    return !isGone(one.state) && one.state != ProcessState::unknown;
  };
  std::stable_sort(processes.begin(), processes.end(), [&](const Process& a, const Process& b) {
    return std::pair(runs(a), a.beat) > std::pair(runs(b), b.beat);
  });
  std::set<std::tuple<std::string, uint32_t, int64_t, std::string>> seen;
  std::erase_if(processes, [&](const Process& one) {
    return !seen.insert({one.host, one.user, one.presence.pid, one.presence.place}).second;
  });
  for (Process& process : processes) {
    std::set<std::tuple<uint32_t, bool, std::string, std::string>> comms;
    std::erase_if(process.comms, [&](const Comm& one) {
      return !comms.insert({one.number, one.sends, one.device, one.peer}).second;
    });
  }
  return processes;
}

const char* name(stats::Way way) {
  constexpr const char* kNames[] = {"none", "eager", "rendezvous", "direct", "spilled"};
  return static_cast<size_t>(way) < std::size(kNames) ? kNames[static_cast<size_t>(way)] : "unknown";
}

const char* name(stats::LineState state) {
  constexpr const char* kNames[] = {"unused", "live", "over", "failed", "earlier"};
  return static_cast<size_t>(state) < std::size(kNames) ? kNames[static_cast<size_t>(state)] : "unknown";
}

const char* name(ProcessState state) {
  switch (state) {
    case ProcessState::gone:
      return "gone";
    case ProcessState::runs:
      return "runs";
    case ProcessState::waitsInKernel:
      return "waits in the kernel";
    case ProcessState::stopped:
      return "stopped";
    case ProcessState::traced:
      return "traced";
    case ProcessState::unknown:
      break;
  }
  return "unknown";
}

}  // namespace weft::counted
