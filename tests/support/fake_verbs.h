// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "providers/verbs/ports.h"
#include "src/base/clock.h"

// libibverbs and four cards of one port, in this process: a write lands as it is posted, unless held. It
// counts what it is asked for, and fails as told. A process has one at a time, since the functions of a
// Library carry no state. Any thread.
namespace weft::test {

class FakeVerbs {
 public:
  // Of one queue pair.
  struct Asked {
    uint64_t posts = 0;  // rings of the doorbell
    uint64_t requests = 0, signalled = 0, inlined = 0, writes = 0, notifications = 0;
    uint64_t bytes = 0;
  };
  struct Ece {
    uint32_t vendor = 0, options = 0;
  };

  FakeVerbs();
  ~FakeVerbs();
  FakeVerbs(const FakeVerbs&) = delete;
  FakeVerbs& operator=(const FakeVerbs&) = delete;

  std::shared_ptr<const verbs::Library> library();
  // A transport whose devices are those cards' ports, opened with these settings.
  std::unique_ptr<Transport> transport(std::vector<int> cards, const Config& config = {});

  verbs::Port portOf(size_t card, const Config& config = {});

  // Before the first use:
  const Clock* clock = &Clock::system();  // of the devices
  int openFails = 0;                      // errno of opening a card
  int registerFails = 0;                  // of registering memory
  ibv_port_state portState = IBV_PORT_ACTIVE;
  ibv_transport_type speaks = IBV_TRANSPORT_IB;
  ibv_mtu mtus[4] = {IBV_MTU_4096, IBV_MTU_4096, IBV_MTU_4096, IBV_MTU_4096};
  bool infiniband = false;  // else RoCE
  bool eceThere = true;     // the library has its two functions
  Ece ece[4];               // what each card offers
  // Habits of real cards, each for itself or together:
  bool tellsLength = true;   // of the write of a notification
  bool carriesEmpty = true;  // a notification without bytes arrives
  bool dropsEarly = false;   // what comes to a queue pair that cannot receive yet; it is repeated later
  size_t batch = 1;          // entries of a completion queue show so many at a time, or at the fourth look
  std::atomic<int> room = 1 << 20;           // registrations, of all cards
  verbs::Apart apart = verbs::Apart::never;  // of its ports, beside what settings say
  std::thread::id polls = std::this_thread::get_id();
  std::atomic<int> destroyedByPoll{0};  // queue pairs, by the thread that polls
  std::atomic<int> relaxed{0};          // registrations whose writes may pass each other
  bool saysLast = true;                 // that a queue pair in ERR took its last receive

  std::vector<uint32_t> pairsOf(int card);  // alive, in the order of making
  size_t receivesOf(int card);              // posted there and not taken by a notification
  Asked asked(uint32_t pair);
  ibv_qp_attr connectedWith(uint32_t pair);  // what it was moved to RTR with
  Ece eceSet(uint32_t pair);                 // zero: none
  void resetCounts();
  std::atomic<int> tooEarly{0};  // works that came where the peer's queue pair could not receive yet
  void receivesLate(int card, Milliseconds by);  // its queue pairs are ready to receive so much later
  void hold(bool on);                            // false: what was held happens
  void release(uint32_t pair);                   // of this one alone, what was held so far
  std::atomic<int> takesOnly = -1;  // so many requests of the next post; the rest is refused for want of room
  void failNext(uint32_t pair);     // its next work ends as if the peer were gone
  std::atomic<bool> noRoute{false};  // the kernel finds no way to any peer, and says so at once
  std::atomic<int> lookedFor{0};     // so often it was asked then

  // The address that a card's port is reached by; with a later change of it comes an event, as its kind.
  struct Reached {
    std::string gid;  // empty: by none
    uint16_t lid = 0;
    bool needsHeader = false;
    std::string other{};  // of IPv6 beside one of IPv4; empty: none
    int firstIndex = 0;   // of the first one in the card's table
  };
  void setReached(int card, const Reached& by);
  std::function<void()> onAsking;               // with each look at it, when that is known
  std::atomic<int> readFails = 0;               // so many of the next looks fail
  void happens(int card, ibv_event_type type);  // at its port

 private:
  struct Card;
  struct CompletionQueue;
  struct ReceiveQueue;
  struct Pair;
  struct Region;

  static int post(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad);
  static int poll(ibv_cq* cq, int most, ibv_wc* out);
  static int postReceives(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad);
  static int askPort(ibv_context* context, uint8_t port, ibv_port_attr* out, size_t bytes);
  static Pair* pairOf(ibv_qp* qp);
  Card& cardOf(const ibv_device* device);
  Result<verbs::PortAddress> addressOf(int card);
  void bindCards(verbs::Library* library);
  void bindMemory(verbs::Library* library);
  void bindPairs(verbs::Library* library);
  void take(Pair& pair, const ibv_send_wr& request);
  void keep(Pair& pair, const ibv_send_wr& request);
  void carryOut(Pair& pair, const ibv_send_wr& request);
  void carryOutHeld(Pair& pair);
  void finish(Pair& pair, const ibv_send_wr& request, ibv_wc_status status);
  void toError(Pair& pair);
  void raise(Card& card, const ibv_async_event& event);
  void destroy(const ibv_qp* qp);
  void move(Pair& pair, const ibv_qp_attr& to, int mask);

  std::mutex mutex_;
  std::shared_ptr<verbs::Library> library_;
  std::vector<std::unique_ptr<Card>> cards_;
  std::map<const ibv_cq*, std::unique_ptr<CompletionQueue>> completionQueues_;
  std::map<const ibv_srq*, std::unique_ptr<ReceiveQueue>> receiveQueues_;
  std::map<uint32_t, std::unique_ptr<Pair>> pairs_;
  std::map<const ibv_mr*, std::unique_ptr<Region>> regions_;
  uint32_t nextPair_ = 1;
  std::set<const ibv_qp*> handled_;  // an event of each is with its card's reader, unacknowledged
  std::condition_variable acknowledged_;
  bool holding_ = false;
};

}  // namespace weft::test
