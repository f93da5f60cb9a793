// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "providers/ofi/address.h"
#include "providers/ofi/queue.h"
#include "providers/ofi/stream.h"
#include "src/base/clock.h"
#include "weft/transport.h"

// One lane. libfabric's RDM endpoints connect when something is posted and reconnect when something broke,
// both without a word; a lane is stricter. It is connected once a write to the peer's hello target was
// acknowledged, dead at the first failure, and retired after one more acknowledged write behind everything
// else, or after its sockets were closed. With several streams all that holds of each of them. Used by the
// Queue's thread.
namespace weft::ofi {

class OfiEndpoint : public Endpoint {
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

  // Whether somebody counts on it: not dead, not about to be closed, and not to ourselves.
  bool wanted() const { return state_ <= State::ready && peer_.names != mine_.names; }

  // From the Queue. finished: an operation of this lane ended; true when `out` holds something to hand out.
  bool finished(const Operation& operation, int error, std::string_view why, Completion* out);
  // The same for a Work that went well; `out` is to be handed out unless it was an unsignaled one.
  void succeeded(const Operation& operation, Completion* out) {
    operation.stream->outstanding--;
    out->kind = CompletionKind::sent;
    out->ok = true;
    out->context = operation.context;
    out->source = this;
  }
  void helloCame(fi_addr_t by);  // a hello write of one of the peer's streams is here
  // Moves a connecting or retiring lane on; false when there is nothing more to do.
  bool progress(TimePoint now, bool drained);
  void broke(const std::string& why);          // all of it, with no operation to blame
  void endpointGoing(const std::string& why);  // the Queue closes the shared endpoint: broken
  void endpointGone(const std::string& why);   // it is closed: fenced

  explicit OfiEndpoint(OfiQueue& queue);

 private:
  enum class State : uint8_t { idle, connecting, ready, dead, retiring, closing, retired };

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
  int64_t sendHello(Stream* stream);  // posts its hello write; 0, above 0 for later, or libfabric's error
  bool progressConnecting(TimePoint now);
  bool progressRetiring(TimePoint now);
  bool progressClosing(bool drained);
  bool stayBusy();
  void died(const std::string& why);
  bool landed(Stream* stream);
  bool everythingLanded();
  bool fenced() const;
  size_t outstanding() const;
  void helloFinished(Stream* stream, int error, const std::string& why);
  void connected();
  void connectFailed(int error, const std::string& why);
  void closeFabric();
  void failOutstanding();
  void reportRetired(int error);
  Completion about(CompletionKind kind, int error = 0) { return completionOf(this, kind, error); }
  std::string named(const char* what, const std::string& why) const;

  OfiQueue& queue_;
  const bool wantsDescriptors_;  // hardware; memory registered with a card that is lost has none
  std::array<Stream, LaneAddress::kMostNames> streams_;
  size_t count_ = 1;       // streams in use
  size_t turn_ = 0;        // the one that carried a large write last
  size_t injectRoom_ = 0;  // unsignaled writes of so many bytes may be injected
  uint32_t injected_ = 0;
  LaneAddress mine_;
  Bytes address_;  // mine_, encoded
  LaneAddress peer_;
  std::string peerText_;
  State state_ = State::idle;
  bool known_;             // the peer's card would answer us
  bool onItsWay_ = false;  // what it carried may still land, though it was given up
  TimePoint deadline_{};
  TimePoint dialAnyway_{};  // the peer's word may have come before we knew its address
};

}  // namespace weft::ofi
