// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <string_view>

#include "providers/ofi/address.h"
#include "providers/ofi/queue.h"
#include "src/base/clock.h"
#include "weft/transport.h"

// One lane. libfabric's RDM endpoints connect when something is posted and reconnect when something broke,
// both without a word; a lane is stricter. It is connected once a write to the peer's doorstep was
// acknowledged, dead at the first failure, and retired after one more acknowledged write behind everything
// else, or after its sockets were closed. Used by the Queue's thread.
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

  // From the Queue. finished: an operation of this lane ended; true when `out` holds something to hand out.
  bool finished(Purpose purpose, uint64_t context, int error, std::string_view why, Completion* out);
  // The same for a Work that went well; `out` is to be handed out unless it was a quiet one.
  void succeeded(const Operation& operation, Completion* out) {
    outstanding_--;
    out->kind = CompletionKind::sent;
    out->ok = true;
    out->context = operation.context;
    out->source = this;
  }
  // Moves a connecting or retiring lane on; false when there is nothing more to do.
  bool tend(TimePoint now, bool drained);
  void broke(const std::string& why);         // died with no operation to blame
  void endpointGone(const std::string& why);  // the Queue closed the shared endpoint: fenced, and broken

  explicit OfiEndpoint(OfiQueue& queue);

 private:
  enum class State : uint8_t { idle, connecting, ready, dead, retiring, closing, retired };

  Status start();
  Result<Bytes> fabricName() const;
  [[gnu::noinline]] size_t postBurst(std::span<const Work> works);
  bool submit(const Work& work, uint64_t flags);
  ssize_t issuePlain(const Work& work, Operation* operation);
  [[gnu::noinline]] ssize_t issueSpecial(const Work& work, Operation* operation, uint64_t flags);
  [[gnu::noinline]] bool refused(const Work& work, Operation* operation, ssize_t code);
  iovec doorstepSource() const;
  fi_rma_iov doorstepTarget() const;
  uint64_t deliveredFlag() const;
  void rejected(const Work& work, int64_t code);
  int64_t ring();  // posts the doorstep write; 0, -FI_EAGAIN or another error
  bool tendConnecting(TimePoint now);
  bool tendRetiring(TimePoint now);
  bool tendClosing(bool drained);
  bool everythingLanded();
  void doorstepFinished(int error, const std::string& why);
  void connectFailed(int error, const std::string& why);
  void closeFabric();
  void failOutstanding();
  void reportRetired(int error);
  Completion about(CompletionKind kind, int error = 0);
  std::string named(const char* what, const std::string& why) const;

  OfiQueue& queue_;
  FidPtr<fid_ep> own_;  // software providers
  fid_ep* fabric_ = nullptr;
  Bytes address_;
  Bytes ownName_;  // the fabric's part of it
  LaneAddress peer_;
  std::string peerText_;
  fi_addr_t peerAddress_ = FI_ADDR_UNSPEC;
  State state_ = State::idle;
  bool inBook_ = false;
  bool known_;            // the peer's card would answer us
  bool ringing_ = false;  // a doorstep write is in flight
  bool lost_ = false;     // the provider said that the connection is no more, or it never stood
  bool fenced_ = false;   // nothing of ours is on its way any more
  size_t outstanding_ = 0;
  TimePoint deadline_{};
};

}  // namespace weft::ofi
