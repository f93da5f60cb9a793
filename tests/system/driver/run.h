// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tools/netdriver/comm.h"

// What a case reports to: its checks, what it counted, and the settings it runs under. A failed check is
// printed at once; require also ends the case. Shared by the threads of a case.
namespace weft::system {

using netdriver::Call;
using netdriver::Net;

// Thrown by require and caught by the program: it only ends the case.
struct CaseFailed {};
// Likewise by skip.
struct CaseSkipped {};

struct Settings {
  std::string plugin;
  std::vector<int> abis;
  std::vector<int> fewAbis;        // instead of them in the first tier, where not empty
  std::vector<std::string> modes;  // "threads", "processes"
  std::vector<std::string> only;   // names of cases; empty: all
  bool full = false;
  bool verbose = false;                   // show what the plugin logs
  bool merge = false;                     // all devices of a side are one
  std::string breakCommand;               // for cases that break something in the middle
  std::vector<std::string> otherProcess;  // "NAME=VALUE" each, in its environment
  std::vector<std::string> thirdProcess;  // likewise, for cases that have one; empty: as the other one
  Milliseconds timeout{60000};            // for every single wait

  // Set in a process that another one started to be the other side.
  int rank = 0;
  uint16_t rendezvousPort = 0;
};

// A line of a source file. As std::source_location, which clang 14 does not have with every standard library.
struct Where {
  const char* file;
  int line;
  static constexpr Where current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

class Run {
 public:
  Run(const Settings& settings, std::string name) : settings_(settings), name_(std::move(name)) {}

  const Settings& settings() const { return settings_; }
  bool full() const { return settings_.full; }
  // The small count in the first tier, the other one in the second.
  template <class T>
  T scaled(T small, T large) const {
    return full() ? large : small;
  }

  bool expect(bool condition, const std::string& text, Where where = Where::current());
  void require(bool condition, const std::string& text, Where where = Where::current());
  // The value, or the end of the case.
  template <class T>
  T need(Result<T> result, Where where = Where::current()) {
    if (!result) require(false, result.error().message(), where);
    return result.take();
  }
  void need(Status result, Where where = Where::current()) {
    if (!result) require(false, result.error().message(), where);
  }
  // Ends the case, which cannot run here: it is listed with the reason. Both sides have to come to that.
  [[noreturn]] void skip(const std::string& reason);
  // ncclSuccess, or the end of the case.
  void success(ncclResult_t result, Call call, Where where = Where::current());

  // Adds to what the case prints when it ends.
  void count(const std::string& what, uint64_t howMany = 1);
  // From here on the plugin may warn: the case provokes it.
  void expectWarnings() { warningsExpected_ = true; }
  bool warningsExpected() const { return warningsExpected_; }
  // How many cards the device in use has.
  void usesCards(int cards) { cards_ = cards; }
  int cards() const { return cards_; }

  uint64_t failures() const;
  std::string skipped() const;  // why; empty: it was not
  std::string summary() const;

 private:
  void fail(const std::string& text, const Where& where);

  const Settings& settings_;
  std::string name_;
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> counts_;
  uint64_t failures_ = 0;
  std::string skipped_;
  std::atomic<bool> warningsExpected_{false};
  std::atomic<int> cards_{1};
};

// A moment after which waiting is a failure. Every wait of a case has one.
class Deadline {
 public:
  Deadline(Run& run, std::string what, Where where = Where::current());
  Deadline(Run& run, std::string what, Milliseconds limit, Where where = Where::current());

  // Ends the case when the moment has passed; yields otherwise.
  void check();

 private:
  Run& run_;
  std::string what_;
  Where where_;
  Milliseconds limit_;
  std::chrono::steady_clock::time_point end_;
};

}  // namespace weft::system
