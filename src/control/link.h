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

// The link to one other process: its numbered frames, its connection and the watch over its life.
//   opening  not linked yet. Each dial proves the secret of the call at the front, so what is said about
//            that secret or its listener concerns that call alone.
//   up       A connection stands and pings go out; the peer's kernel and its process are listened for
//            separately.
//   lost     The connection broke or the peer's host is silent: every address is dialled again, frames wait.
//            The silence is reported once, and is death when the fabric is silent as well and both for
//            WEFT_KERNEL_TIMEOUT.
//   dead     Final. The reason is at the Peer, if there was one.
// enter() is the one function that changes the state. A link knows nothing of calls and listeners: what
// happens it reports to its owner. Control thread.
namespace weft::control {

// The intervals a link lives by, from the settings.
struct LifeTimes {
  explicit LifeTimes(const Config& config);
  Milliseconds ping;    // between pings, and between looks at the peer
  Milliseconds silent;  // no word from the process for this long: answers() is false
  Milliseconds warn;
  Milliseconds giveUp;    // no word from the process, while its kernel answers
  Milliseconds redial;    // no word from its kernel: the connection may be what is broken
  Milliseconds hostWarn;  // no word from its kernel
  Milliseconds kernel;    // no word from its kernel, and nothing from it over the fabric
};

// The other process, as the first proven connection tells of it.
struct LinkFacts {
  std::shared_ptr<PeerImpl> peer;
  Key128 linkKey{};
  LinkNonces nonces;
  std::vector<SocketAddress> addresses;
};

// The surroundings that all links of this process share; they outlive every link.
struct LinkWorld {
  EventLoop& loop;
  const LifeTimes& times;
  Self& self;
};

class Link : public MessageSink {
 public:
  enum class State : uint8_t { opening, up, lost, dead };

  class Owner {
   public:
    virtual ~Owner() = default;
    // While it is opening:
    virtual void linkOpened(Link& link, Linked linked) = 0;          // to be established, or refused
    virtual void linkRefused(Link& link, const Error& why) = 0;      // the front call
    virtual void linkUnreachable(Link& link, const Error& why) = 0;  // all calls
    // From then on: a call, an answer to one, or a message of a user's type.
    virtual void linkBrought(Link& link, uint16_t type, std::span<const std::byte> body) = 0;
    virtual void linkDead(Link& link, const Error& reason) = 0;
  };

  Link(const LinkWorld& world, Owner& owner, const Incarnation& process);
  ~Link() override;

  // Opening: dials anew. The calls that wait are the owner's business.
  void dial(DialPlan plan);
  std::deque<uint64_t> calls;  // by id; the front one is dialled for
  std::string trouble() const { return dial_ ? dial_->trouble() : std::string(); }

  // Once, before the first connection is attached.
  void establish(LinkFacts facts);
  // Takes a proven connection; what the peer says it received is not sent again.
  void attach(Fd socket, const Info& info);
  // The same for one the peer dialled: our info goes out first.
  void attachAndGreet(Fd socket, const Info& info);

  void deliver(uint16_t type, Bytes body) override;  // numbered, kept until acknowledged
  void die(const Error& reason);
  void abandon() { (void)enter(State::dead); }  // opening: no call wants it any more
  void goodbye();                               // the last frame; then nothing is sent
  bool drained() const;                         // nothing left to write, or nowhere to write it

  State state() const { return state_; }
  const Incarnation& process() const { return process_; }
  const std::shared_ptr<PeerImpl>& peer() const { return facts_.peer; }  // null while opening
  const LinkNonces& nonces() const { return facts_.nonces; }
  const Key128& linkKey() const { return facts_.linkKey; }
  uint64_t peerEpoch() const { return peerEpoch_; }
  bool shaking() const { return dial_ && dial_->shaking(); }

 private:
  bool enter(State next);
  void leaveConnection();
  void leaveDial();

  void onDial(DialReport report);
  void dialLinked(Linked linked);
  void dialRefused(const Error& why);
  void dialGone(const Error& why);
  void dialContact();
  void dialMistaken();

  void onConnection(const LinkReport& report);
  void onFrame(const FrameHeader& header, std::span<const std::byte> body);
  void onLost(const std::string& why);
  void onNonsense(const std::string& why);
  void onRoom();
  void pump();
  void writeNumbered(const FrameQueue::Frame& frame);
  void ping();
  void sendUnnumbered(FrameType type, std::span<const std::byte> body = {});
  bool acceptNumber(const FrameHeader& header);
  void dispatch(const FrameHeader& header, std::span<const std::byte> body);
  void lose(const std::string& why);
  void redial();
  void look();
  void lookAtKernel(TimePoint now);
  void noteAcks(TimePoint now);
  void kernelAnswered(TimePoint when);
  void lookAtProcess(TimePoint now);
  void warnOfHost(TimePoint now);
  void hostSilent(TimePoint now);
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
  std::unique_ptr<LinkIo> io_;
  std::unique_ptr<Dial> dial_;
  FrameQueue frames_;
  uint64_t peerEpoch_ = 0;
  uint64_t unacknowledgedArrivals_ = 0;
  uint64_t bytesAcked_ = 0;  // of this connection, at the last look
  bool closing_ = false;
  bool warned_ = false;      // of the process
  bool hostWarned_ = false;  // of its host
  TimePoint kernelHeard_;
  TimePoint processHeard_;  // moved by outages, which say nothing about the process
  TimePoint fabricHeard_;   // as the Peer was told, or when the link was made
  TimePoint kernelHeardBeforeContact_;
  TimePoint processHeardBeforeContact_;
  TimePoint silentSince_;  // lost: the kernel's last word
  TimePoint settlesAt_{};  // up: from then on the peer is settled
  TimePoint lookDue_;
  TimePoint lastPing_;
  Timer lookTimer_;
};

}  // namespace weft::control
