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
// two crossing connections wins and carries calls between links and listeners. Everything but the
// constructor, start(), runInline() and wantTick() belongs to the control thread, or to a thread that takes a
// turn for it: one lock, which only the control thread waits for and no thread holds while it sleeps.
namespace weft::control {

struct ControlLoopParts {
  HubOptions options;
  Incarnation self{};
  std::vector<SocketAddress> addresses;  // with the port
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<ListenerTable> listeners;
};

class ControlLoop : public Link::Owner {
 public:
  ControlLoop(ControlLoopParts parts, std::unique_ptr<EventLoop> loop);
  Status start(std::vector<Fd> listeners);

  void run();        // the control thread's body
  void runInline();  // any thread: takes one turn for the control thread, unless a turn is being taken
  void stop() { stopping_ = true; }
  // Any thread; then signal the mailbox.
  void wantTick() { tickWanted_.store(true, std::memory_order_release); }

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
  struct Asked {  // a request some listener of ours has not answered
    std::shared_ptr<PeerImpl> peer;
    uint64_t remoteId = 0;
    uint32_t listener = 0;
  };

  void runOnce(std::unique_lock<std::mutex>* turn, TimePoint latest);
  void handle(const EventLoop::Events& events);
  void tick();
  void close(std::unique_lock<std::mutex>* turn);

  std::variant<Key128, Answer> secretFor(const Hello& hello);
  void greeted(Greeting greeting);
  void greetedOpen(Greeting greeting);
  void greetedResume(Greeting greeting);
  void rejectCrossed(Greeting greeting);
  bool refusedByFingerprint(const Greeting& greeting);
  void noteMisfit(const Incarnation& peer, const Error& why);
  const Error& misfitOr(const Incarnation& peer, const Error& why) const;
  void establish(Link& link, LinkFacts facts);
  std::shared_ptr<PeerImpl> makePeer(const Incarnation& incarnation, const Info& info, int fd);
  void sendWaiting(Link& link);

  void sendCall(uint64_t id, const LinkNonces& nonces, PeerImpl& to);
  bool prolong(PendingCall& call) const;
  void expireCall(uint64_t id);
  void dialFor(Link& link);
  void nextCall(Link& link);
  Link& addLink(const Incarnation& process);
  void removeLink(const Link& link);
  Link* linkTo(const Incarnation& process);       // in any state
  Link* opening(const Incarnation& process);      // one that is not linked yet
  Link* established(const Incarnation& process);  // one that is, or was

  void brought(const std::shared_ptr<PeerImpl>& from, const LinkNonces& nonces, uint16_t type,
               std::span<const std::byte> body);
  void onReply(const std::shared_ptr<PeerImpl>& from, const ReplyBody& reply);
  void onCall(const std::shared_ptr<PeerImpl>& from, const LinkNonces& nonces, const CallBody& call);
  void refuseCall(PeerImpl& peer, uint64_t remoteId, const Error& why);
  void onMessage(const std::shared_ptr<PeerImpl>& from, uint16_t type, std::span<const std::byte> body);
  PeerImpl& selfPeer();

  const ControlLoopParts parts_;
  const LifeTimes times_;
  Self self_;
  const std::unique_ptr<EventLoop> loop_;
  std::mutex turnMutex_;
  Watch mailWatch_;
  std::atomic<bool> tickWanted_{true};
  TimePoint nextTick_{};
  TimePoint sleepsUntil_{};  // the control thread, as far as it knew when it began to
  bool stopping_ = false;
  bool closing_ = false;
  uint64_t lastRequest_ = 0;
  std::unique_ptr<Acceptor> acceptor_;
  CallTable calls_;
  std::map<uint64_t, Asked> asked_;
  // Processes that do not fit this one, and why. These processes end soon, maybe before they have taken a
  // call of ours: then this is the reason that the call is told, not that the process is gone.
  std::map<Incarnation, Error> misfits_;
  std::map<Incarnation, std::unique_ptr<Link>> links_;
  std::unique_ptr<SelfLink> selfLink_;
};

}  // namespace weft::control
