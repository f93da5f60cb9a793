// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include "src/stats/layout.h"
#include "weft/result.h"

// The profile of a process, for WEFT_PROFILE: what all its comms counted from the first to the last, added up
// by peer, device and direction, and written as one JSON file when the process ends. Until then it only
// collects, at moments when connections come and go. A life of the library owns it, runtimes share it.
// Thread-safe.
namespace weft::stats {

inline constexpr const char* kProfileEnding = ".profile.json";
inline constexpr int kProfileVersion = 1;

// The sums of all comms with one peer, by one device, in one direction. Times are nanoseconds.
struct FlowSum {
  struct Size {
    uint64_t messages = 0, bytes = 0;
    uint64_t timed = 0, nanoseconds = 0;  // as SizeClass
  };
  uint64_t comms = 0, failed = 0;
  uint64_t busy = 0, waited = 0, waits = 0;
  uint64_t registrations = 0;
  std::array<uint64_t, kWays> ways{};
  OneSidedSum oneSided;
  std::array<Size, kSizeClasses> sizes{};
  std::map<uint64_t, uint64_t> latency;  // requests that took up to so many nanoseconds, by bucket
};

// The registrations of one device.
struct MemorySum {
  uint64_t hits = 0, misses = 0, evictions = 0;
  uint64_t bytes = 0, nanoseconds = 0;
};

// Writes over one rail of a device that has several, clear-to-send lines among them.
struct RailSum {
  uint64_t writes = 0, bytes = 0;
  uint64_t bytesAgain = 0;  // of these, written again after another rail had lost them
};

struct ProfileSums {
  using Key = std::tuple<bool, std::string, std::string>;  // it sends, device, peer
  std::map<Key, FlowSum> flows;
  std::map<std::string, MemorySum> memory;                       // by device
  std::map<std::pair<std::string, std::string>, RailSum> rails;  // by device and rail
  uint64_t leftOut = 0;                                          // comms that found no line to count in

  // `nanoseconds`: of a tick.
  void add(const CommLine& line, double nanoseconds);
  void add(const std::string& device, const MemorySum& more);
  void add(const std::string& device, const std::string& rail, const RailSum& more);
  void addAll(const ProfileSums& more);
};

// The rails of a runtime's engines, which tell it now and then, and at the end of a peering. Any thread.
class RailSums {
 public:
  void add(const std::string& device, const std::string& rail, const RailSum& more);
  void addTo(ProfileSums* sums) const;

 private:
  mutable std::mutex mutex_;
  ProfileSums sums_;  // its rails alone
};

// Anything that has counted and may go before the process does.
class ProfileSource {
 public:
  virtual void addTo(ProfileSums* sums) = 0;

 protected:
  ~ProfileSource() = default;
};

class Profile {
  struct Key {};

 public:
  // An error where the folder cannot be written to: it names the folder and the next step.
  static Result<std::shared_ptr<Profile>> create(const std::string& folder, const std::string& network);
  Profile(Key, std::string folder, std::string network);

  void begin(ProfileSource* source);
  void end(ProfileSource* source);  // it goes, and what it has counted stays here

  // Writes HOST.PID.profile.json, or HOST.PID-1... where that is there: of what is over and of what lives.
  // Nothing where no connection was ever made. The file gets its name when it is whole.
  Status write();

 private:
  std::string textOf(const ProfileSums& sums) const;

  const std::string folder_;
  const std::string network_;
  const uint64_t begun_;  // nanoseconds since 1970
  std::mutex mutex_;      // of what follows
  std::set<ProfileSource*> living_;
  ProfileSums over_;
  bool used_ = false;
};

}  // namespace weft::stats
