// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/base/pointer_set.h"
#include "src/core/checksums.h"
#include "src/core/comm_report.h"
#include "src/core/ending.h"
#include "src/core/engine_entry.h"
#include "src/core/life.h"
#include "src/core/patience.h"
#include "src/stats/comm_stats.h"

// What send and receive comms share: their place in an engine and a peering, the sticky error, memory
// handles, the conversation of closing. Created on connect and accept; data calls come from one thread at a
// time, register and close from another; both enter the engine.
namespace weft::core {

// The first error of a comm. Set from any thread, read by one atomic load.
class StickyError {
 public:
  bool set() const { return set_.load(std::memory_order_acquire); }
  bool put(Error error);  // false: there was one before
  Error get() const;

 private:
  std::atomic<bool> set_{false};  // whether error_ is there, for readers without the lock
  mutable std::mutex mutex_;
  std::unique_ptr<Error> error_;
};

struct CommOptions {
  std::shared_ptr<Runtime> runtime;  // keeps the hub alive; null while a connection is being made
  ContextRef context;                // likewise
  std::shared_ptr<Engine> engine;
  Peering* peering = nullptr;
  int device = 0;
};

}  // namespace weft::core

template <>
struct std::default_delete<weft::core::SendCommImpl> : weft::core::CommCloser<weft::core::SendCommImpl> {
  using CommCloser::CommCloser;
};
template <>
struct std::default_delete<weft::core::RecvCommImpl> : weft::core::CommCloser<weft::core::RecvCommImpl> {
  using CommCloser::CommCloser;
};

namespace weft::core {

class CommBase {
 public:
  CommBase(CommOptions options, const char* kind);
  virtual ~CommBase();

  uint32_t number() const { return number_; }
  uint32_t remoteNumber() const { return remoteNumber_; }
  Engine& engine() const { return *options_.engine; }
  Peering& peering() const { return *options_.peering; }
  SendCommImpl* asSend() const { return send_; }  // null: it is the other kind
  RecvCommImpl* asRecv() const { return recv_; }

  // The only way down; again is harmless. Tells the other end where that has to hear of it and does not from
  // the peering, and logs what its owner does not know, as long as that has not closed it. Inside the engine.
  [[gnu::cold]] void end(const Ending& ending);
  bool failed() const { return sticky_.set(); }
  void endForOwner(const std::string& why);
  bool isLeftByPeer();
  Stage stage() const { return life_.stage(); }
  bool closedByPeer() const { return other_ == OtherEnd::closed; }         // inside the engine
  bool wantsPeer() const { return stage() < Stage::left && needsPeer(); }  // its owner has to hear

  // Gives it back: waits, by the engine's clock, until nothing of it is under way. The steps are taken by the
  // poll passes of whoever comes by, this call's among them; what does not end in its time is cut off.
  void close();
  // For giveBack, inside the engine: gives away what keeps the process's part of weft alive, the engine among
  // it. No profiler hears of its requests any more.
  CommOptions detach();
  // For the engine's end, whose lanes go next: the comm lets go of all that it has there. Its memory stays.
  void abandon();
  void keepMemory(std::shared_ptr<const void> memory);
  // Inside the engine: the closing begins, and goes on as far as it can. An engine steps those in its list.
  void beginClosing();
  void stepClosing();
  bool isClosed() const { return life_.is(Stage::over); }
  Error stickyError() const { return sticky_.get(); }
  void keepAlive(std::shared_ptr<Runtime> runtime, ContextRef context) {
    options_.runtime = std::move(runtime);
    options_.context = std::move(context);
  }

  const stats::CommLine* counters() const { return stats_.line(); }  // null: nothing is counted
  stats::OneSided* oneSidedCounters() { return stats_.line() ? &stats_.line()->oneSided : nullptr; }
  void publish();                         // what is counted elsewhere, into what others see; now and then
  virtual void tellSums() {}              // those that have gathered, to the other end; now and then
  virtual bool busy() const = 0;          // something is outstanding
  virtual void watch(TimePoint now) = 0;  // looks for what waits too long
  // The other end is closed. A sender says how many messages it sent, unless its whole engine is gone.
  virtual void onPeerClosed(std::optional<uint64_t> sent);
  virtual CommReport describe() = 0;
  // To be called now and then: so it is known since when NCCL waits for the same message.
  virtual void noteWaits(WaitLook* look) = 0;
  virtual bool needsPeer() const { return true; }  // false: the peer may go, everything got where it should
  virtual void onPeerGone() {}                     // instead of failing, where the peer is not needed
  virtual void onMessage(MessageType type, ByteReader* body) = 0;  // addressed to this comm

  Tested testRequest(Request* request, int* sizes) { return core::test(request, sizes); }
  Tested testOwn(Request* request, int* sizes);  // an object, and one of this comm's; testing.h
  Result<MemoryHandle*> addHandle(MemoryDesc desc, PeerAccess peers);
  Status removeHandle(MemoryHandle* handle);

 protected:
  // Why the memory does not fit a data call; null when it does.
  static const char* memoryFault(const MemoryHandle* handle, const CommBase* owner, const void* data,
                                 size_t bytes) {
    if (bytes == 0) return nullptr;
    if (!handle) return "a buffer without a memory handle; register it on this comm first";
    if (handle->owner != owner) return "a memory handle of another comm; register the buffer on this one";
    if (!handle->covers(data, bytes))
      return "a buffer outside the range its memory handle was registered for";
    return nullptr;
  }

  // Service thread only: enters again and again until `done`, at most closeTimeout. False: the deadline
  // passed, which the peering remembers for the closes that follow.
  bool waitFor(const std::function<bool()>& done);
  void fence();  // nothing posted on this peering lands after this
  bool cuttingOver();
  Nanoseconds cuttingTime() const;
  void act(Action action);
  void sayClosed();
  void letGoOfAll();
  std::unique_ptr<MemoryHandle> takeHandle(MemoryHandle* handle);  // out of our hands, and the peer's
  // It is deregistered with work in flight: wait, cancel or fence.
  virtual void stopUsing(MemoryHandle* handle) = 0;
  // NCCL gives a handle with every message, whether or not a profiler wants to hear of network events; only
  // its answer tells. So it is asked about every message until it declined kDeclines in a row, and from then
  // on about every kBetweenQuestions-th: a profiler that is switched on later misses fewer than that.
  bool asksProfiler() {
    if (untilAsked_ == 0) [[unlikely]]
      return true;
    untilAsked_--;
    return false;
  }
  void beginEvent(Request* request, size_t part, void* profilerHandle, size_t bytes) {
    if (profilerHandle) [[unlikely]]
      beginProfiled(request, part, profilerHandle, bytes);
  }
  void endEvent(Request* request, size_t part, size_t bytes) {
    if (request->events[part]) [[unlikely]]
      endProfiled(request, part, bytes);
  }

  void sumNothing();
  // Whether it may be summed: GPU memory is not read for that, which is said once.
  static bool canSum(const MemoryHandle* memory);

  // For reasons of this end, which the other one hears of.
  [[gnu::cold]] void endByUs(Error why) { end({Ending::By::us, std::move(why)}); }
  bool mayBeUnheard(const Ending& ending) const;

  // What is awaited; `first`: nothing came before, and its limit is that of a beginning.
  struct Awaited {
    uint32_t k;
    uint64_t bytes;
    bool first;
  };
  Nanoseconds waitLimit(uint64_t bytes, bool first) const;
  void lookAt(Standing* standing, const Awaited& message, bool counts, WaitLook* look);
  CommReport describeCommon() const;
  void otherIs(OtherEnd to);  // as far as that is new
  std::vector<MemoryHandle*> handlesInOrder() const;
  // Closing, in `draining` or `told`: what has come to pass; none: it waits until closingLate().
  virtual std::optional<Event> closingEvent() = 0;
  bool closingLate();
  static std::optional<Event> when(bool happened, Event event) {
    return happened ? std::optional(event) : std::nullopt;
  }
  virtual void askOther() = 0;         // to say that it has everything, or how much it has sent
  virtual void letGo() = 0;            // of all requests: nobody waits for them any more
  virtual uint64_t total() const = 0;  // of a sender's messages
  virtual void leaveRing() {}          // a sender's, to its peering
  [[gnu::noinline]] Tested testUnfinished(Request* request) const;
  [[gnu::noinline]] Tested finish(Request* request, int* sizes);
  [[gnu::noinline]] void beforePoll(Request* request);

  [[gnu::cold]] void beginProfiled(Request* request, size_t part, void* profilerHandle, size_t bytes);
  [[gnu::cold]] void endProfiled(Request* request, size_t part, size_t bytes);
  MessageEvent eventOf(const Request& request, size_t part, size_t bytes) const;

  static constexpr uint8_t kDeclines = 32;
  static constexpr uint8_t kBetweenQuestions = 16;

  CommOptions options_;
  SendCommImpl* send_ = nullptr;  // this, whichever it is
  RecvCommImpl* recv_ = nullptr;
  uint32_t number_ = 0;  // in the engine; 0 once it is closed
  uint32_t remoteNumber_ = 0;
  Life life_;
  OtherEnd other_ = OtherEnd::open;
  uint8_t declines_ = 0;    // of the profiler, in a row
  uint8_t untilAsked_ = 0;  // so many messages pass before it is asked again
  StickyError sticky_;
  SumRule sums_;                                   // which messages' bytes are summed; both ends agree
  stats::CommStats stats_;                         // what others see of it
  std::vector<std::shared_ptr<const void>> kept_;  // memory of others, which goes behind the handles
  PointerSet<MemoryHandle> handles_;               // owned; only inside the engine
  uint64_t handlesMade_ = 0;
  std::optional<Patience> patience_;  // of the closing
  WaitHistory history_;
  std::atomic<bool> mayStand_{false};  // said by the owner; the control thread looks now and then
  std::atomic<bool> mayIdle_{false};   // likewise
};

}  // namespace weft::core
