// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "src/control/acceptor.h"
#include "src/control/calls.h"
#include "src/control/event_loop.h"
#include "src/control/link.h"
#include "src/control/listeners.h"
#include "src/control/mailbox.h"
#include "src/control/self_link.h"

// The control thread's world: the processes that are linked, being dialled, or calling. It decides which of
// two crossing connections stays, and carries calls between links and listeners.
// Threads: everything but the constructor, start(), runInline() and wantTick() belongs to the control thread,
// or to a thread that takes a turn for it. A turn holds turnMutex_. Only the control thread waits for that
// mutex, and no thread holds it while it sleeps.
namespace weft::control {

// The parts that the hub and the loop share.
struct ControlLoopParts {
  HubOptions options;
  Incarnation self{};
  std::vector<SocketAddress> addresses;  // with the port, in the order to try
  Protection protection;
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<ListenerTable> listeners;
};

class ControlLoop : public Link::Owner {
 public:
  ControlLoop(ControlLoopParts parts, std::unique_ptr<EventLoop> loop);
  Status start(std::vector<Fd> listeners);

  void run();        // the control thread's body; returns after stop() and the goodbyes
  void runInline();  // any thread: takes a turn for the control thread, unless one is being taken
  // On the control thread, by the mailbox.
  void stop() { stopping_ = true; }
  // Any thread. The caller has to signal the mailbox afterwards.
  void wantTick() { tickWanted_.store(true, std::memory_order_release); }

  // The work that the hub posts: calls of this process, and the answers to requests of others.
  void startCall(uint64_t id, std::shared_ptr<CallState> state, Handle handle, Bytes body);
  void forgetCall(uint64_t id);
  void answer(const Request& request, std::span<const std::byte> body);
  void refuse(const Request& request, const Error& why);
  void closeListener(uint32_t id);

  // Link::Owner
  void linkOpened(Link& link, Linked linked) override;
  void linkRefused(Link& link, const Error& why) override;
  void linkUnreachable(Link& link, const Error& why) override;
  void linkBrought(Link& link, uint16_t type, std::span<const std::byte> body) override;
  void linkDead(Link& link, const Error& reason) override;

 private:
  struct Asked {  // a request that a listener of ours has not answered
    std::shared_ptr<PeerImpl> peer;
    uint64_t remoteId = 0;  // the id in the peer's process
    uint32_t listener = 0;
  };

  // Sleeps until an event or `latest`, without the turn, and handles what came.
  void runOnce(std::unique_lock<std::mutex>* turn, TimePoint latest);
  void handle(const EventLoop::Events& events);
  void tick();
  void close(std::unique_lock<std::mutex>* turn);

  // Connections that come in.
  std::variant<Key256, Answer> secretFor(const Hello& hello);
  void greeted(Greeting greeting);
  void greetedOpen(Greeting greeting);
  void greetedResume(Greeting greeting);
  void rejectCrossed(Greeting greeting);
  bool refusedByFingerprint(Greeting& greeting);
  // Remembers that a process does not fit this one.
  void noteMisfit(const Incarnation& peer, const Error& why);
  const Error& misfitOr(const Incarnation& peer, const Error& why) const;
  void establish(Link& link, LinkFacts facts);
  std::shared_ptr<PeerImpl> makePeer(const Incarnation& incarnation, const Info& info, int fd);
  // Sends the calls that waited for the link to open.
  void sendWaiting(Link& link);

  void sendCall(uint64_t id, const Key256& binding, PeerImpl& to);
  bool prolong(PendingCall& call) const;
  void expireCall(uint64_t id);
  void dialFor(Link& link);
  void nextCall(Link& link);
  Link& addLink(const Incarnation& process);
  void removeLink(const Link& link);
  Link* linkTo(const Incarnation& process);       // the link in any state; null: none
  Link* opening(const Incarnation& process);      // a link that is not linked yet; null: none
  Link* established(const Incarnation& process);  // a link that is up, lost or dead; null: none

  void brought(const std::shared_ptr<PeerImpl>& from, const Key256& binding, uint16_t type,
               std::span<const std::byte> body);
  void onReply(const std::shared_ptr<PeerImpl>& from, const ReplyBody& reply);
  void onCall(const std::shared_ptr<PeerImpl>& from, const Key256& binding, const CallBody& call);
  Key256 callKey(const Key128& secret) const { return parts_.protection.keyFor(secret, kCallPurpose); }
  void refuseCall(PeerImpl& peer, uint64_t remoteId, const Error& why);
  void onMessage(const std::shared_ptr<PeerImpl>& from, uint16_t type, std::span<const std::byte> body);
  PeerImpl& selfPeer();

  const ControlLoopParts parts_;
  const LifeTimes times_;
  Self self_;                              // outlives every link
  const std::unique_ptr<EventLoop> loop_;  // destroyed after everything that has watches or timers in it
  std::mutex turnMutex_;                   // a turn: see above
  Watch mailWatch_;
  std::atomic<bool> tickWanted_{true};
  TimePoint nextTick_{};     // of Handler::onTick
  TimePoint sleepsUntil_{};  // until then the control thread sleeps, as it knew when it began to sleep
  bool stopping_ = false;
  bool closing_ = false;  // goodbyes are going out: nothing new is taken
  uint64_t lastRequest_ = 0;
  std::unique_ptr<Acceptor> acceptor_;
  CallTable calls_;
  std::map<uint64_t, Asked> asked_;
  // The processes that do not fit this one, and the reasons. These processes end soon, maybe before they have
  // taken a call of ours. The call is then told this reason, and not that the process is gone.
  std::map<Incarnation, Error> misfits_;
  std::map<Incarnation, std::unique_ptr<Link>> links_;  // at most one link a process
  std::unique_ptr<SelfLink> selfLink_;                  // made at the first call to this process itself
};

}  // namespace weft::control
