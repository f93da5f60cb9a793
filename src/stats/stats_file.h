// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "src/base/fd.h"
#include "src/stats/layout.h"
#include "src/stats/profile.h"
#include "weft/result.h"

// This process's counters in shared memory. With a folder it is a file there, HOST.PID.stats, which stays
// when the process dies, or a comm ended with an error, and else goes with this object; without one it is a
// memfd, which others find through /proc/PID/fd. Both can be opened by the same user alone. The room of a
// line is reserved when it is taken: a store to memory that the disk has no room for would be a signal. Lines
// of comms that are over serve others soon, so a process that connects often needs no more room than one that
// keeps its connections. Any thread.
namespace weft::stats {

class StatsFile {
  struct Key {};

 public:
  // Fails where there is no room; the job goes on without.
  static Result<std::unique_ptr<StatsFile>> create(const std::string& folder);
  explicit StatsFile(Key) {}
  ~StatsFile();
  StatsFile(const StatsFile&) = delete;
  StatsFile& operator=(const StatsFile&) = delete;

  // A line for a comm; null when all are taken or there is no room, which is counted.
  CommLine* take(uint32_t number, bool sends, const std::string& device, const std::string& peer);
  // The comm is closed. Its line stays as it is until another needs it; its counts are kept then.
  void give(CommLine* line, bool failed);
  // For a profile. Lines that served another comm later are in it where keepAll was called at the begin.
  void addTo(ProfileSums* sums);
  void keepAll() { keeps_ = true; }
  void beat();  // the process lives: to be called about once a second

 private:
  Status open(const std::string& folder);
  CommLine* find();
  CommLine* nextIn(LineState state);
  CommLine* fresh(size_t bytes);  // never taken, with so much room; null: none, or no room
  CommLine* earlierLike(const CommLine& line);
  void retire(CommLine* line);
  double nanosecondsOfTick() const;

  std::mutex mutex_;
  Fd file_;
  std::string path_;  // empty: a memfd
  Header* header_ = nullptr;
  CommLine* lines_ = nullptr;
  bool failed_ = false;  // a comm did: what was counted is evidence
  bool keeps_ = false;   // what lines counted is kept when they serve another comm
  ProfileSums kept_;
  uint32_t used_ = 0;  // lines that were taken at least once
  uint32_t over_ = 0;  // of these, lines of comms that are over
  uint32_t turn_ = 0;  // where the search for one that is over goes on
};

}  // namespace weft::stats
