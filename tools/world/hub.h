// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "src/control/hub.h"
#include "tools/world/control_net.h"

// The hub of one rank's process in a world: what src/control promises, without sockets. Its control thread is
// a task of the scheduler. It watches its peers as a link does: each end sends a ping now and then, and what
// the other's process or its kernel does not answer is silence. Tasks of one thread.
namespace weft::world {

class WorldPeer final : public control::Peer, public std::enable_shared_from_this<WorldPeer> {
 public:
  WorldPeer(WorldHub& hub, const WorldHub& other, uint64_t link);
  const control::Incarnation& incarnation() const override { return incarnation_; }
  std::string name() const override { return name_; }
  bool alive() const override { return alive_; }
  Error reason() const override { return reason_; }
  bool answers() const override { return alive_ && answers_; }
  bool settled() const override { return answers() && settled_; }
  void seenOnFabric(TimePoint when) override { seenOnFabric_ = when; }
  void send(uint16_t type, Bytes body) override;
  const control::Fingerprint& fingerprint() const override { return fingerprint_; }

  // For its hub:
  void die(const Error& reason);
  std::optional<Error> look(TimePoint now, Nanoseconds late);  // why it is given up
  uint64_t link() const { return link_; }
  uint64_t other() const { return other_; }
  int rank() const { return rank_; }

 private:
  WorldHub* hub_;  // null: dead, or the hub is closed
  const uint64_t other_;
  const uint64_t link_;
  const int rank_;
  const control::Incarnation incarnation_;
  const std::string name_;
  const control::Fingerprint fingerprint_;
  bool alive_ = true;
  bool answers_ = true;
  bool settled_ = true;
  bool warned_ = false;
  Error reason_{Code::internal, "control link", "the peer is alive"};
  TimePoint seenOnFabric_{};
  TimePoint processHeard_;
  TimePoint kernelHeard_;
  TimePoint settlesAt_{};
};

class WorldHub final : public control::Hub {
 public:
  WorldHub(ControlNet& net, int rank, uint64_t number, control::HubOptions options);
  ~WorldHub() override;
  void begin();

  Result<std::unique_ptr<control::Listener>> listen() override;
  std::unique_ptr<control::Call> call(const control::Handle& handle, Bytes body) override;
  void reply(const control::Request& request, Bytes body) override;
  void refuse(const control::Request& request, const Error& why) override;
  void runInline() override;
  void wake() override;
  void post(std::function<void()> work) override;
  bool onControlThread() const override { return net_.scheduler().current() == task_; }
  const control::Incarnation& incarnation() const override { return incarnation_; }

  int rank() const { return rank_; }
  uint64_t number() const { return number_; }
  static uint64_t numberOf(const control::Incarnation& process);  // of the hub that it would be
  ControlNet& net() const { return net_; }
  const control::HubOptions& options() const { return options_; }

  // From the network, on the control thread or in runInline:
  void take(std::function<void(WorldHub&)> mail);  // any time
  void rankGone(int rank, const char* why);
  void allGone(const char* why);
  void peerGone(uint64_t hub, uint64_t link, const char* why);
  void bring(uint64_t hub, uint64_t link, uint16_t type, const Bytes& body);
  void bringCall(uint64_t hub, uint64_t link, uint32_t listener, uint64_t id, Bytes body);
  void bringAnswer(uint64_t hub, uint64_t link, uint64_t id, Bytes body);
  void bringRefusal(uint64_t hub, uint64_t link, uint64_t id, const Error& why);

  // From calls and listeners:
  void forget(uint64_t call);
  void closeListener(uint32_t id);
  std::deque<control::Request>& requests(uint32_t listener) { return listeners_[listener]; }

  struct CallState {
    control::Call::State state = control::Call::State::pending;
    control::PeerRef peer;
    Bytes body;
    std::optional<Error> why;
  };

 private:
  struct Waiting {
    std::weak_ptr<CallState> state;
    uint64_t to = 0;
    TimePoint deadline;
    bool prolonged = false;
  };
  struct Asked {
    uint64_t hub = 0;
    uint64_t link = 0;
    uint64_t call = 0;
    uint32_t listener = 0;
  };

  void thread();
  void turn();
  void tick();
  void look();
  void expireCalls();
  TimePoint nextDue() const;
  std::shared_ptr<WorldPeer> peerOn(uint64_t hub, uint64_t link);
  void bury(uint64_t hub, const Error& reason);
  void failCalls(uint64_t to, const Error& why);
  void failCall(uint64_t id, const Error& why);
  Nanoseconds pingEvery() const;

  ControlNet& net_;
  const int rank_;
  const uint64_t number_;
  const control::HubOptions options_;
  control::Incarnation incarnation_{};
  Task* task_ = nullptr;
  std::deque<std::function<void(WorldHub&)>> mail_;
  std::map<uint64_t, std::shared_ptr<WorldPeer>> peers_;  // alive, by hub
  std::map<uint64_t, uint64_t> lastDead_;                 // by hub: what its older links bring is stale
  std::map<uint32_t, std::deque<control::Request>> listeners_;
  std::map<uint64_t, Waiting> calls_;
  std::multiset<TimePoint> deadlines_;  // of calls_
  std::map<uint64_t, Asked> asked_;
  uint32_t lastListener_ = 0;
  uint64_t lastCall_ = 0;
  uint64_t lastRequest_ = 0;
  TimePoint nextTick_{};
  TimePoint nextLook_{};
  bool tickWanted_ = true;
  bool inTurn_ = false;
  bool stopping_ = false;
};

}  // namespace weft::world
