// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "providers/common/lane_life.h"
#include "providers/ofi/address.h"
#include "providers/ofi/queue.h"
#include "providers/ofi/stream.h"
#include "src/base/clock.h"
#include "weft/transport.h"

// A lane. libfabric's RDM endpoints connect when something is posted and reconnect when a connection broke,
// both silently; a lane is stricter. It is connected when a write to the peer's hello target was
// acknowledged. It is dead at the first failure. It is retired after one more acknowledged write behind
// everything else, or after its sockets were closed. With several streams, each of them has to be. The
// states: lane_life.h. Used by the Queue's thread.
namespace weft::ofi {

class OfiEndpoint : public Endpoint, private LaneLife::Host {
 public:
  static Result<std::unique_ptr<Endpoint>> create(OfiQueue& queue);
  ~OfiEndpoint() override;

  std::span<const std::byte> address() const override { return address_; }
  Status connect(std::span<const std::byte> peerAddress) override;
  Result<RemoteMemory> import(std::span<const std::byte> blob) override;
  size_t post(std::span<const Work> works) override;
  void peerConnected() override { known_ = true; }
  void retire() override;
  bool cut() override;

  // The protocol counts on this lane: it is not dead, not about to be closed, and not a loopback lane.
  bool wanted() const { return life_.state() <= LaneState::ready && peer_.names != mine_.names; }

  // From the Queue. An operation of this lane has ended; true: `out` is to be handed out.
  bool finished(const Operation& operation, int error, std::string_view why, Completion* out);
  // The same for a Work that succeeded; `out` is to be handed out unless the Work is unsignaled.
  void succeeded(const Operation& operation, Completion* out) {
    operation.stream->outstanding--;
    out->kind = CompletionKind::sent;
    out->ok = true;
    out->context = operation.context;
    out->source = this;
  }
  void helloCame(fi_addr_t by);  // a hello write of a stream of the peer's has come
  // Moves a connecting or retiring lane on. False: nothing remains to be done.
  bool progress(TimePoint now, bool drained);
  void broke(const std::string& why);          // the whole lane, and no operation failed with it
  void endpointGoing(const std::string& why);  // the Queue closes the shared endpoint: the lane is broken
  void endpointGone(const std::string& why);   // the shared endpoint is closed: the lane is fenced

  explicit OfiEndpoint(OfiQueue& queue);

 private:
  Status start();
  Status openStreams();
  size_t streamsWanted() const;
  Result<Bytes> fabricName(fid_ep* endpoint) const;
  std::span<Stream> streams() { return std::span(streams_).first(count_); }
  Stream& streamFor(const Work& work);
  [[gnu::noinline]] size_t postBurst(std::span<const Work> works);
  bool submit(const Work& work);
  [[gnu::noinline]] size_t postOne(const Work& work) { return queue_.room() > 0 && submit(work); }
  bool mayInject(const Work& work);
  bool inject(const Work& work);
  ssize_t issuePlain(const Work& work, Operation* operation);
  [[gnu::noinline]] ssize_t issueSpecial(const Work& work, Operation* operation);
  [[gnu::noinline]] bool refused(const Work& work, Stream& stream, ssize_t code);
  uint64_t noticeOf(const Work& work) const;
  bool software() const { return queue_.device().traits().software; }
  iovec helloSource() const;
  fi_rma_iov helloTarget() const;
  uint64_t deliveredFlag() const;
  void rejected(const Work& work, int64_t code);
  int64_t sendHello(Stream* stream);  // returns 0, a positive number for "later", or libfabric's error
  void greetPeer(TimePoint now);
  void noteStrays();
  std::optional<int> landing(TimePoint now, bool late);
  std::optional<int> closed(TimePoint now) const;
  std::optional<int> stayBusy();
  void died(const std::string& why);
  bool landed(Stream* stream);
  bool everythingLanded();
  size_t outstanding() const;
  void helloFinished(Stream* stream, int error, const std::string& why);
  void closeFabric();
  void failOutstanding();
  Completion about(CompletionKind kind, int error = 0) { return completionOf(this, kind, error); }

  // LaneLife::Host
  size_t dropOutstanding(LaneState from, int error, const std::string& why) override;
  void startFence(LaneState from) override;
  std::optional<int> fenced(TimePoint now, bool late) override;
  void endFence(bool) override { failOutstanding(); }
  void report(const Completion& completion, const std::string& why) override {
    queue_.report(completion, why);
  }
  std::string named(const char* what, const std::string& why) const override;
  Endpoint& endpoint() override { return *this; }

  OfiQueue& queue_;
  const bool wantsDescriptors_;  // hardware; memory on a lost card has no descriptor
  std::array<Stream, LaneAddress::kMostNames> streams_;
  size_t count_ = 1;       // streams in use
  size_t turn_ = 0;        // the stream that carried the last large write
  size_t injectRoom_ = 0;  // unsignaled writes up to this size may be injected
  uint32_t injected_ = 0;  // injected writes in a row
  LaneAddress mine_;
  Bytes address_;  // mine_, encoded
  LaneAddress peer_;
  std::string peerText_;
  LaneLife life_;
  bool known_;              // the peer's card would answer us
  bool onItsWay_ = false;   // the fence was given up while its works may still land
  bool closing_ = false;    // retiring: only the entries of the completion queue are awaited
  bool drained_ = false;    // the completion queue was read to its end
  TimePoint strayUntil_{};  // until then a packet of a work that failed may be on the wire
  TimePoint dialAnyway_{};  // then dial, as the peer's hello may have come before we knew its address
};

}  // namespace weft::ofi
