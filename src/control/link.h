// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <string>

#include "src/base/config.h"
#include "src/control/dial.h"
#include "src/control/frame_queue.h"
#include "src/control/link_io.h"
#include "src/control/peer.h"

// The link to another process: its numbered frames, its connection, and the watch over its life.
//   opening  Not linked yet. Each dial proves the secret of the call at the front, so a refusal concerns
//            that call alone.
//   up       A connection is there and pings go out; the peer's kernel and its process are watched
//            separately.
//   lost     The connection broke, or the peer's host is silent. Every address is dialled again, and frames
//            wait. The silence is reported once. It is death when the fabric is silent as well, and both for
//            WEFT_KERNEL_TIMEOUT.
//   dead     Final. The Peer has the reason, if there is a Peer.
// enter() is the one function that changes the state. A link knows nothing of calls and listeners: it reports
// events to its owner, the control loop. Control thread.
namespace weft::control {

// The intervals that a link lives by, derived from the settings.
struct LifeTimes {
  explicit LifeTimes(const Config& config);
  Milliseconds ping;      // between pings, and between two looks at the peer
  Milliseconds silent;    // after this time without a word from the process, answers() is false
  Milliseconds warn;      // no word from the process, while its kernel answers: a warning
  Milliseconds giveUp;    // no word from the process, while its kernel answers: the peer is dead
  Milliseconds redial;    // no word from its kernel: the connection may be broken, so it is dialled again
  Milliseconds hostWarn;  // no word from its kernel: a warning
  Milliseconds kernel;    // no word from its kernel, and nothing over the fabric: the peer is dead
};

// The other process, as the first proven connection shows it.
struct LinkFacts {
  std::shared_ptr<PeerImpl> peer;
  Key256 linkKey{};
  Key256 binding{};  // the hash of the handshake that opened the link
  std::vector<SocketAddress> addresses;
};

// The surroundings that all links of this process share. They outlive every link.
struct LinkWorld {
  EventLoop& loop;
  const LifeTimes& times;
  Self& self;
};

class Link : public MessageSink {
 public:
  enum class State : uint8_t { opening, up, lost, dead };

  // Hears a link's reports. It must not destroy the link within a report (EventLoop::releaseLater).
  class Owner {
   public:
    virtual ~Owner() = default;
    // While it is opening:
    virtual void linkOpened(Link& link, Linked linked) = 0;          // to be established, or refused
    virtual void linkRefused(Link& link, const Error& why) = 0;      // decides the front call
    virtual void linkUnreachable(Link& link, const Error& why) = 0;  // decides all calls
    // From then on: a call, an answer to a call, or a message of a user's type. `body` is valid during the
    // report.
    virtual void linkBrought(Link& link, uint16_t type, std::span<const std::byte> body) = 0;
    virtual void linkDead(Link& link, const Error& reason) = 0;
  };

  Link(const LinkWorld& world, Owner& owner, const Incarnation& process);
  ~Link() override;

  // In state opening: dials anew. The owner keeps the calls that wait.
  void dial(DialPlan plan);
  std::deque<uint64_t> calls;  // the owner's: ids of the calls that wait; the dial is for the front one
  std::string trouble() const { return dial_ ? dial_->trouble() : std::string(); }

  // Called once, before the first connection is attached.
  void establish(LinkFacts facts);
  // Takes a proven connection. Frames that the peer says it has are not sent again.
  void attach(SealedSocket socket, const Info& info);
  // The same for a connection that the peer dialled: our info goes out first.
  void attachAndGreet(SealedSocket socket, const Info& info);

  void deliver(uint16_t type, Bytes body) override;  // numbered, and kept until it is acknowledged
  // Ends the link and reports it to the owner. Without effect when it is dead.
  void die(const Error& reason);
  void abandon() { (void)enter(State::dead); }  // in state opening: no call wants the link any more
  void goodbye();                               // the last frame; nothing is sent after it
  bool drained() const;  // nothing is left to write, or there is no connection to write it to

  State state() const { return state_; }
  const Incarnation& process() const { return process_; }
  const std::shared_ptr<PeerImpl>& peer() const { return facts_.peer; }  // null in state opening
  const Key256& binding() const { return facts_.binding; }
  const Key256& linkKey() const { return facts_.linkKey; }
  uint64_t peerEpoch() const { return peerEpoch_; }
  bool shaking() const { return dial_ && dial_->shaking(); }

 private:
  // Changes the state by the table in link.cc. False: the change is not allowed, and nothing was done.
  bool enter(State next);
  void leaveConnection();
  void leaveDial();

  // The reports of the dial, and of the connection.
  void onDial(DialReport report);
  void dialLinked(Linked linked);
  void dialRefused(const Error& why);
  void dialGone(const Error& why);
  void dialContact();
  void dialMistaken();

  void onConnection(const LinkReport& report);
  void onFrame(const FrameHeader& header, std::span<const std::byte> body);
  void onLost(const ConnectionLost& lost);
  void onNonsense(const std::string& why);
  void onRoom();
  void pump();
  void writeNumbered(const FrameQueue::Frame& frame);
  void ping();
  void sendUnnumbered(FrameType type, std::span<const std::byte> body = {});
  bool acceptNumber(const FrameHeader& header);
  void dispatch(const FrameHeader& header, std::span<const std::byte> body);
  // The connection is lost: dials the peer again, unless the link is closing.
  void lose(const std::string& why);
  void redial();
  // The periodic look at the peer: kernel, fabric and process apart.
  void look();
  void lookAtKernel(TimePoint now);
  void noteAcks(TimePoint now);
  void kernelAnswered(TimePoint when);
  void lookAtProcess(TimePoint now);
  void warnOfHost(TimePoint now);
  void hostSilent(TimePoint now);
  std::string nextStepOfCut() const;
  std::string haltedText() const;  // empty: nothing is known to hold it up
  void settleAfterOutage(TimePoint now);
  TimePoint hostHeard() const { return std::max(kernelHeard_, fabricHeard_); }
  void scheduleLook(TimePoint now);
  void heard();

  EventLoop& loop_;
  const LifeTimes& times_;
  Self& self_;
  Owner& owner_;
  const Incarnation process_;
  LinkFacts facts_;
  State state_ = State::opening;
  std::unique_ptr<LinkIo> io_;  // null: no connection
  std::unique_ptr<Dial> dial_;  // null: nothing is dialled
  FrameQueue frames_;
  uint64_t peerEpoch_ = 0;               // of the peer's newest connection; an older one is stale
  uint64_t unacknowledgedArrivals_ = 0;  // frames that came since our last acknowledgement
  uint64_t bytesAcked_ = 0;              // of this connection, at the last look
  bool closing_ = false;                 // the goodbye is on its way
  bool warned_ = false;                  // the silence of the process was reported
  bool hostWarned_ = false;              // the silence of its host was reported
  TimePoint kernelHeard_;                // the last sign of its kernel on this link
  TimePoint processHeard_;  // the last frame; moved on by outages, which say nothing about the process
  TimePoint fabricHeard_;   // the Peer's last sign on the fabric; at first the time of the link
  TimePoint kernelHeardBeforeContact_;  // the value before the dial's contact, which may prove mistaken
  TimePoint processHeardBeforeContact_;
  TimePoint silentSince_;  // in state lost: the kernel's last sign
  TimePoint settlesAt_{};  // in state up: from then on the peer is settled
  TimePoint lookDue_;      // when the next look should come; a late one is our own fault
  TimePoint lastPing_;
  Timer lookTimer_;
};

}  // namespace weft::control
