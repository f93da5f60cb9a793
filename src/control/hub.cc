// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/hub.h"

#include <mutex>
#include <thread>

#include "src/base/log.h"
#include "src/base/net/address.h"
#include "src/base/process.h"
#include "src/base/random.h"
#include "src/base/reserve.h"
#include "src/control/addresses.h"
#include "src/control/control_loop.h"

// The hub: calls of other threads as work for the control thread, and the start of that thread.
namespace weft::control {

namespace {

// The part of the hub that other threads see. It turns every call into work for the control thread.
class HubImpl : public Hub {
 public:
  HubImpl(ControlLoopParts parts, std::unique_ptr<EventLoop> loop)
      : self_(parts.self),
        addresses_(parts.addresses),
        mailbox_(parts.mailbox),
        listeners_(parts.listeners),
        loop_(std::make_unique<ControlLoop>(std::move(parts), std::move(loop))) {}
  ~HubImpl() override;

  Status start(std::vector<Fd> sockets);

  const Incarnation& incarnation() const override { return self_; }
  Result<std::unique_ptr<Listener>> listen() override;
  std::unique_ptr<Call> call(const Handle& handle, Bytes body) override;
  void reply(const Request& request, Bytes body) override;
  void refuse(const Request& request, const Error& why) override;
  void runInline() override { loop_->runInline(); }
  void wake() override;
  void post(std::function<void()> work) override { mailbox_->post(std::move(work)); }
  bool onControlThread() const override { return std::this_thread::get_id() == threadId_.load(); }

 private:
  const Incarnation self_;
  const std::vector<SocketAddress> addresses_;
  const std::shared_ptr<Mailbox> mailbox_;
  const std::shared_ptr<ListenerTable> listeners_;
  std::atomic<uint64_t> lastCall_{0};
  std::unique_ptr<ControlLoop> loop_;
  std::atomic<std::thread::id> threadId_{};  // written by the control thread itself
  std::thread thread_;
};

Status HubImpl::start(std::vector<Fd> sockets) {
  TRY(loop_->start(std::move(sockets)));
  TRY(thread_, startThread("weft-control", [this] {
        threadId_.store(std::this_thread::get_id());
        loop_->run();
      }));
  return {};
}

// A forked child has no control thread to join, and must leave the parent's sockets alone. The loop is leaked
// there, as its destructor would shut the sockets down.
HubImpl::~HubImpl() {
  if (!thread_.joinable()) return;
  if (inForkedChild()) {
    thread_.detach();
    (void)loop_.release();
    return;
  }
  const MustNotFail closing;
  mailbox_->post([board = loop_.get()] { board->stop(); });
  thread_.join();
}

// The destructor of the listener runs `closed`. The mailbox is shared, so the closures are safe after the
// hub's end: a closed mailbox drops them.
Result<std::unique_ptr<Listener>> HubImpl::listen() {
  auto queue = listeners_->add(self_, addresses_);
  const uint32_t id = queue->handle().listener;
  auto closed = [id, listeners = listeners_, mailbox = mailbox_, board = loop_.get()] {
    listeners->remove(id);
    mailbox->post([board, id] { board->closeListener(id); });
  };
  return std::unique_ptr<Listener>(std::make_unique<ListenerImpl>(std::move(queue), std::move(closed)));
}

// The state is shared with the control thread, so the call may be destroyed before it is decided.
std::unique_ptr<Call> HubImpl::call(const Handle& handle, Bytes body) {
  auto state = std::make_shared<CallState>();
  const uint64_t id = lastCall_.fetch_add(1) + 1;
  auto forgotten = [id, mailbox = mailbox_, board = loop_.get()] {
    mailbox->post([board, id] { board->forgetCall(id); });
  };
  auto call = std::make_unique<CallImpl>(state, std::move(forgotten));
  const char* wrong = body.size() > kMaxBody     ? "the request is larger than 64 KiB"
                      : handle.addresses.empty() ? "the handle holds no address"
                                                 : nullptr;
  if (wrong) {
    state->fail(Error(Code::invalidArgument, "connecting", wrong));
    return call;
  }
  auto shared = std::make_shared<Bytes>(std::move(body));
  const bool posted = mailbox_->post([board = loop_.get(), id, state, handle, shared] {
    board->startCall(id, state, handle, std::move(*shared));
  });
  if (!posted)
    state->fail(Error(Code::unavailable, "connecting", "control links are closed in this process"));
  return call;
}

void HubImpl::reply(const Request& request, Bytes body) {
  auto shared = std::make_shared<Bytes>(std::move(body));
  mailbox_->post([board = loop_.get(), request, shared] { board->answer(request, *shared); });
}

void HubImpl::refuse(const Request& request, const Error& why) {
  mailbox_->post([board = loop_.get(), request, why] { board->refuse(request, why); });
}

void HubImpl::wake() {
  loop_->wantTick();
  mailbox_->signal();
}

// Said once in a process.
void sayHandlesAloneProve() {
  static std::once_flag once;
  std::call_once(once, [] {
    WEFT_LOG(info,
             "no secret of the job is set (WEFT_SECRET), so control links are as strong as the handles that "
             "NCCL passes around in clear");
  });
}

// The info has to fit into kMaxInfo on every host.
Status checkFingerprint(const Fingerprint& fingerprint) {
  Info info;
  info.fingerprint = fingerprint;
  if (encodeInfo(info).size() <= kMaxInfo - 1024) return {};  // the rest is for host name and addresses
  return Error(Code::internal, "starting control links", "the fingerprint is too large");
}

}  // namespace

Result<std::shared_ptr<Hub>> Hub::create(HubOptions options) {
  TRY(checkFingerprint(options.fingerprint));
  TRY(const Protection protection, readProtection(options.config));
  if (!protection.jobSecret) sayHandlesAloneProve();
  TRY(const auto interfaces, localInterfaces());
  TRY(const auto addresses, chooseAddresses(interfaces, options.config.socketIfname));
  TRY(const PortRange ports, parsePortRange(options.config.portRange));
  TRY(auto listening, openListeners(addresses, ports));
  TRY(auto mailbox, Mailbox::create());
  TRY(auto loop, EventLoop::create(*options.clock));
  ControlLoopParts parts;
  parts.options = std::move(options);
  fillRandom(parts.self);
  parts.addresses = std::move(listening.addresses);
  parts.protection = protection;
  parts.mailbox = std::move(mailbox);
  parts.listeners = std::make_shared<ListenerTable>();
  auto hub = std::make_shared<HubImpl>(std::move(parts), std::move(loop));
  TRY(hub->start(std::move(listening.sockets)));
  return std::shared_ptr<Hub>(std::move(hub));
}

}  // namespace weft::control
