// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "src/agg/errands.h"
#include "src/agg/group.h"
#include "src/base/net/guest.h"
#include "src/coll/join.h"

// An aggregation daemon: lets ranks join, forms groups of them, and moves their data. Two
// threads live as long as the daemon: one accepts, the other moves the data of all groups in turn; without
// groups both sleep, and look again every few milliseconds. Neither thread ever waits for a member, and
// nobody waits with a lock held: all waiting goes through the network's clock. Work that may have to wait (a
// talk, a refusal, the closing of an ended group) is an errand with a thread of its own, so a bad member
// delays its own group alone. Any thread may call.
namespace weft::agg {

// Quotas.
struct Limits {
  size_t groups = 64;
  size_t bytes = size_t{1} << 30;  // of all groups, those that form included
  size_t ranks = 64;               // of a group
  size_t guests = 128;             // connections that have proven nothing
  size_t joining = 128;            // talks with those that have, at a time; more of them wait
  Milliseconds patience{20000};    // for a group to become complete
};

struct DaemonOptions {
  core::ContextRef context;
  int device = 0;
  // ADDRESS:PORT; port 0: any port. Empty: a free port, on all addresses where there is a secret, else on the
  // loopback address. Without a secret, an address that other hosts reach is an error.
  std::string listen;
  std::string name;    // HOST:PORT in the words of others; empty: the address it listens on
  std::string secret;  // as in the settings: the text, or @FILE
  size_t window = 16;  // chunks of a group that may be here at a time
  Limits limits;
  const Threads* threads = &Threads::system();
};

class Daemon {
 public:
  static Result<std::unique_ptr<Daemon>> start(DaemonOptions options);
  explicit Daemon(DaemonOptions options)
      : options_(std::move(options)), talks_(*options_.threads), closings_(*options_.threads) {}
  ~Daemon();

  uint16_t port() const { return port_; }
  const std::string& name() const { return options_.name; }
  bool isOpenToThisHostOnly() const { return secret_.empty(); }
  // Takes no new group from now on. True when the last group has gone.
  bool drain();
  enum class Format : uint8_t { text, json, prometheus };
  // Waits for a pass of the data thread at most.
  std::string status(Format format);
  // The groups that live, then those that have ended and are not closed. Waits likewise.
  std::vector<GroupReport> reports();
  void kill();  // for tests: as if the process died, without a word to anyone

 private:
  // A group of which some members are here. It ends when it is complete, when its time is over, or when a
  // member leaves.
  struct Forming {
    std::vector<Child> children;  // those that are connected
    std::set<uint32_t> admitted;  // ranks that were let in, connected or not yet
    uint32_t ranks = 0;           // of the whole group
    uint32_t chunkBytes = 0;
    size_t bytes = 0;                    // reserved for it
    TimePoint until = TimePoint::max();  // the end of its time
  };
  // A connection whose request has not come yet, and which has proven nothing before that. It belongs to the
  // accepting thread, which never waits for it.
  struct Newcomer {
    enum class State : uint8_t {
      opening,  // it is to say its message of the handshake
      length,   // it has our answer, and is to say how long its request is
      request,
      leaving,  // it was turned away: its bytes are read until it hangs up
    };
    Guest guest;
    std::string host;  // its address, without the port
    State state = State::opening;
    std::optional<coll::JoinSeal> seal{};  // from the state length on
    Bytes unsaid{};                        // of our message, what the socket has not taken yet

    // It is to say so many bytes there.
    void enter(State to, size_t bytes) {
      state = to;
      guest.expect(bytes);
    }
    // False: the guest is gone.
    bool say(Bytes message) {
      unsaid = std::move(message);
      return goOnSaying();
    }
    bool goOnSaying();
  };
  // A group that has ended: nothing moves in it any more. Its errand alone uses the group; other threads read
  // the report.
  struct Ending {
    std::unique_ptr<AggGroup> group;
    GroupReport report;
    bool begun = false;  // its errand has begun
  };

  // The accepting thread:
  Status listen();
  void accept();
  void awaitGuests();
  void letIn();
  void dropGuest();
  void makeRoom(int errnum);
  bool hear(Newcomer& newcomer);
  bool step(Newcomer& newcomer);
  bool meet(Newcomer& newcomer);
  void judge(Newcomer& newcomer);
  bool turnAway(Newcomer& newcomer, const Error& why);
  void beginTalks();
  void dropForming(TimePoint now);
  std::string faultOf(const Forming& forming, TimePoint now) const;
  void giveUp(Forming forming, const std::string& why);
  void logFailure(const Status& status) const;
  // Errands:
  Status refuse(coll::JoinLink& link, const Error& why);
  Status answerStatus(coll::JoinLink& link, Format format);
  Milliseconds patienceFor(const coll::JoinRequest& request) const;
  Status welcome(coll::JoinLink& link, const coll::JoinRequest& request);
  Status connect(coll::JoinLink& link, const coll::JoinRequest& request, coll::JoinAnswer* answer,
                 Child* child);
  Result<coll::JoinAnswer> admit(const coll::JoinRequest& request);
  std::string refusal(const coll::JoinRequest& request);
  void enter(const coll::JoinRequest& request, Child child);
  void complete(uint64_t id, Forming forming);
  void closeEnded(Ending& ending);
  // The data thread:
  void moveData();
  bool takeFresh();
  const Clock& clock() const { return options_.context->net().clock(); }
  bool passOver();
  void watchGroups();
  void beginEnding();
  void answerReports();
  void rest(int quiet) const;

  DaemonOptions options_;
  std::string secret_;  // the secret itself; empty: every process on this host may join
  Key256 key_{};        // of the handshakes
  Fd listener_;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> draining_{false};
  // Of the data thread alone: the groups in which data moves. It has ended where others touch them.
  std::list<std::unique_ptr<AggGroup>> groups_;
  std::atomic<uint64_t> asked_{0};  // how often somebody asked for reports
  std::mutex mutex_;                // guards what follows, as far as groupCount_
  std::map<uint64_t, Forming> forming_;
  std::list<std::unique_ptr<AggGroup>> fresh_;  // formed, for the data thread
  std::list<Ending> endings_;                   // a list, since each errand refers to its own entry
  std::vector<GroupReport> reports_;            // as the data thread answered
  uint64_t answered_ = 0;                       // those who asked so often have their answer
  std::atomic<size_t> groupCount_{0};           // groups that are complete, until they are closed
  std::atomic<size_t> groupBytes_{0};           // of those groups' memory, and of those that form
  std::atomic<uint64_t> formed_{0}, refused_{0}, ended_{0};
  // Of the accepting thread:
  std::vector<Newcomer> guests_;               // that have proven nothing, oldest first
  std::deque<std::function<void()>> waiting_;  // talks with those that have, for which there is no thread yet
  Errands talks_;     // with members that join, and with processes that ask for the status
  Errands closings_;  // of groups that are given up or have ended
  std::unique_ptr<RunningThread> accepting_;
  std::unique_ptr<RunningThread> moving_;
};

}  // namespace weft::agg
