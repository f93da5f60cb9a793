// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "src/agg/errands.h"
#include "src/agg/group.h"
#include "src/base/net/guest.h"

// An aggregation daemon: lets ranks and other daemons join, forms groups of them, and moves their data. Two
// threads live as long as the daemon: one accepts, one moves the data of all groups in turn; without groups
// both sleep. Neither of them ever waits for a member, nor does anybody with a lock held: what may wait, each
// talk, each refusal and each ended group's closing, is an errand with a thread of its own, so that a bad
// member delays its own group alone. Any thread may call.
namespace weft::agg {

struct Limits {
  size_t groups = 64;
  size_t bytes = size_t{1} << 30;  // of memory, over all groups
  size_t children = 64;            // of a group
  size_t joining = 128;            // connections that are joining or asking at a time
  Milliseconds patience{20000};    // for a group to be complete
};

struct DaemonOptions {
  core::ContextRef context;
  int device = 0;
  // ADDRESS:PORT; port 0: any. Empty: a free port, on all addresses where there is a secret, else on the
  // loopback one. Without a secret an address that other hosts reach is an error.
  std::string listen;
  std::string name;    // HOST:PORT as others call it; empty: what it listens on
  std::string parent;  // empty: none
  std::string secret;  // as in the settings
  size_t window = 16;
  Limits limits;
};

class Daemon {
 public:
  static Result<std::unique_ptr<Daemon>> start(DaemonOptions options);
  explicit Daemon(DaemonOptions options) : options_(std::move(options)) {}
  ~Daemon();

  uint16_t port() const { return port_; }
  const std::string& name() const { return options_.name; }
  bool isOpenToThisHostOnly() const { return secret_.empty(); }
  // Takes no new group from now on; true when the last one has gone.
  bool drain();
  enum class Format : uint8_t { text, json, prometheus };
  std::string status(Format format);
  // Of groups that live, then of those that have ended and are not closed.
  std::vector<GroupReport> reports();
  void kill();  // for tests: as if the process died, without a word to anybody

 private:
  // A group of which some members are here. It ends by being complete, by its time, or by a member that
  // leaves.
  struct Forming {
    std::vector<Child> children;  // those that are connected
    uint32_t ranks = 0;           // of the whole group, wherever they join
    uint32_t chunkBytes = 0;
    uint32_t local = 0;   // ranks that join this daemon themselves
    size_t admitted = 0;  // children that may come, connected or not yet
    TimePoint until{};
  };
  // A connection of which the request has not come yet. The accepting thread's.
  struct Newcomer {
    Guest guest;
    Nonce nonce{};             // the one that the request has to prove it has seen
    bool lengthKnown = false;  // the guest is expected to send the request itself
  };
  // A group in which nothing moves any more. Its errand has the group to itself; all others read the report.
  struct Ending {
    std::unique_ptr<AggGroup> group;
    GroupReport report;
    bool begun = false;  // its errand has the group
  };

  // The accepting thread:
  Status listen();
  void accept();
  void awaitGuests(size_t most);
  void letIn(size_t most);
  void restIfShort(int errnum) const;
  bool hear(Newcomer& newcomer);
  void judge(Newcomer& newcomer);
  void dropForming(TimePoint now);
  std::string faultOf(const Forming& forming, TimePoint now) const;
  void giveUp(Forming forming, const std::string& why);
  void refuse(Newcomer& newcomer, const Error& why);
  void logFailure(const Status& status) const;
  // Errands:
  Status answerStatus(const Fd& link, Format format);
  Status welcome(Fd& link, const coll::JoinRequest& request);
  Result<coll::JoinAnswer> admit(const coll::JoinRequest& request);
  std::string refusal(const coll::JoinRequest& request);
  void enter(const coll::JoinRequest& request, Child child);
  void complete(uint64_t id, Forming forming);
  Result<std::unique_ptr<AggGroup>> makeGroup(uint64_t id, Forming* forming);
  void closeEnded(Ending& ending);
  // The data thread:
  void moveData();
  bool takeFresh();
  const Clock& clock() const { return options_.context->net().clock(); }
  bool passOver();
  void watchGroups();
  void beginEnding();

  void stop();

  DaemonOptions options_;
  std::string secret_;  // itself; empty: everybody on this host may join
  Key128 key_{};
  Fd listener_;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> draining_{false};
  std::mutex mutex_;              // over what forms; taken before groupsMutex_ where both are
  std::condition_variable news_;  // for the data thread: a group is formed, or the daemon stops
  std::map<uint64_t, Forming> forming_;
  std::list<std::unique_ptr<AggGroup>> fresh_;   // formed, for the data thread
  std::mutex groupsMutex_;                       // held by the data thread during a pass
  std::list<std::unique_ptr<AggGroup>> groups_;  // those in which data moves
  std::list<Ending> endings_;                    // a list, as each errand knows its own entry
  std::atomic<size_t> groupCount_{0};            // that are complete, until they are closed
  std::atomic<size_t> groupBytes_{0};            // of their memory
  std::atomic<uint64_t> formed_{0}, refused_{0}, ended_{0};
  std::vector<Newcomer> guests_;  // the accepting thread's
  Errands talks_;                 // with members that join, and processes that ask for the status
  Errands closings_;              // of groups that are given up or have ended
  std::thread accepting_;
  std::thread moving_;
};

}  // namespace weft::agg
