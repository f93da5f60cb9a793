// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/connector.h"

#include "src/base/log.h"

namespace weft::core {

Connector::Connector(Runtime& runtime, const Context* context, int device)
    : runtime_(runtime), context_(context), device_(device) {
  startWaiting();
  called(runtime_.net().clock().now());
}

Connector::~Connector() {
  if (engine_) engine_->connecting.end();
}

// From here on none of its peerings ends for being idle: the peer may answer with one.
void Connector::hold(std::shared_ptr<Engine> engine) {
  EngineEntry in(*engine, EngineEntry::wait);
  engine_ = std::move(engine);
  engine_->connecting.begin();
  engine_->connecting.asked(giveUpAt_);
}

void Connector::startWaiting() {
  deadline_ = runtime_.net().clock().now() + runtime_.net().config().connectTimeout;
}

void Connector::called(TimePoint now) {
  giveUpAt_ = now + 2 * runtime_.net().config().connectTimeout;
  if (engine_) engine_->connecting.asked(giveUpAt_);
}

Status Connector::start(const ContextRef& context, const control::Handle& handle) {
  listener_ = handle.listener;
  if (!handle.addresses.empty()) target_ = handle.addresses.front().text();
  ConnectRequest request;
  if (auto engine = runtime_.engineFor(context, device_)) {
    hold(engine.take());
    request.engine = engine_->id();
    request.rails = static_cast<uint16_t>(engine_->railCount());
  } else {
    refusal_ = std::make_unique<Error>(engine.takeError());
    request.refusal = refusal_->message();
    deadline_ = std::min(deadline_, runtime_.net().clock().now() + runtime_.net().config().closeTimeout);
  }
  call_ = runtime_.hub().call(handle, request.encode());
  return {};
}

bool Connector::belongsTo(const Context* context, int device, uint32_t listener) const {
  return context_ == context && device_ == device && listener_ == listener;
}

Error Connector::late() const {
  return Error(
      Code::timeout, "connecting",
      format("the lanes to %s did not come up within %lld ms; WEFT_CONNECT_TIMEOUT sets the limit",
             target_.c_str(), static_cast<long long>(runtime_.net().config().connectTimeout.count())));
}

// Who has accepted and closed already has no use for lanes, so ours need not come up. NCCL connects more than
// it uses: only who sends is told.
bool Connector::connected() const {
  return comm_->peering().ready() || comm_->closedByPeer();
}

// The other end would wait for us until its deadline. A short one is ours: it may not be accepting yet.
Result<std::unique_ptr<SendComm>> Connector::tellRefusal() const {
  const bool told = call_->state() != control::Call::State::pending;
  if (told || isLate()) return *refusal_;
  return std::unique_ptr<SendComm>();
}

Result<std::unique_ptr<SendComm>> Connector::step(const std::shared_ptr<Runtime>& runtime,
                                                  const ContextRef& context) {
  if (refusal_) return tellRefusal();
  if (!comm_) {
    const auto state = call_->state();
    if (state == control::Call::State::failed) return call_->error();
    if (state == control::Call::State::pending) return std::unique_ptr<SendComm>();
    if (!answered_) startWaiting();
    answered_ = true;
    TRY(onReply());
    runtime_.hub().runInline();
  }
  const bool last = isLate();
  if (!comm_) {  // the two look whether they share memory
    poll(last);
    if (last) TRY(onReply());
  }
  if (comm_ && isUp(last)) {
    if (comm_->failed()) return comm_->stickyError();
    comm_->keepAlive(runtime, context);
    return std::unique_ptr<SendComm>(std::move(comm_));
  }
  if (last) return late();
  return std::unique_ptr<SendComm>();
}

// NCCL calls now and then, and another thread may be inside the engine each time. So the look on which a
// timeout depends is taken in any case: the connection may be up long since.
bool Connector::isUp(bool last) const {
  EngineEntry in(*engine_, last ? EngineEntry::wait : EngineEntry::tryOnce);
  if (in) engine_->progress();
  return comm_->failed() || (in && connected());
}

void Connector::poll(bool last) const {
  EngineEntry in(*engine_, last ? EngineEntry::wait : EngineEntry::tryOnce);
  if (in) engine_->progress();
}

bool Connector::isLate() const {
  return runtime_.net().clock().now() > deadline_;
}

Status Connector::onReply() {
  TRY(const ConnectReply reply, ConnectReply::decode(call_->replyBody()));
  EngineEntry in(*engine_, EngineEntry::wait);
  Status opened = open(reply);
  if (!opened)
    tellEngine(*call_->peer(), {reply.half.engine, engine_->id()}, MessageType::failed,
               FailedMessage{reply.comm, opened.error().message()});
  return opened;
}

Status Connector::open(const ConnectReply& reply) {
  TRY(Peering * peering,
      engine_->peering(call_->peer(), reply.half.engine, reply.half.rails, reply.half.life));
  if (!peering->meet(reply.half)) return {};
  TRY(peering->adopt(reply.half));
  CommOptions options{nullptr, nullptr, engine_, peering, device_};
  TRY(comm_, SendCommImpl::create(std::move(options), reply.comm, reply.window));
  OpenMessage message;
  message.comm = reply.comm;
  message.sender = comm_->number();
  message.half = peering->half();
  message.ringMemory = peering->noticeOf(*comm_->ring().region(), 0);
  message.ringOffset = comm_->ring().offset();
  peering->tell(MessageType::open, message);
  return {};
}

// Accepting:

Result<std::unique_ptr<RecvComm>> ListenCommImpl::step() {
  runtime_->hub().runInline();
  if (!comm_) {
    TRY(auto request, listener_->take());
    if (!request) return std::unique_ptr<RecvComm>();
    if (Status status = onRequest(*request); !status) {
      runtime_->hub().refuse(*request, status.error());
      return status.takeError();
    }
    runtime_->hub().runInline();
  }
  // As for the connector: the look on which a timeout depends is taken in any case.
  const bool last = runtime_->net().clock().now() > deadline_;
  EngineEntry in(*engine_, last ? EngineEntry::wait : EngineEntry::tryOnce);
  if (in) engine_->progress();
  if (comm_->failed()) {
    const Error why = comm_->stickyError();
    return why;
  }
  if (in && comm_->stage() != Stage::opening && comm_->peering().ready())
    return std::unique_ptr<RecvComm>(std::move(comm_));
  if (!last) return std::unique_ptr<RecvComm>();
  const Error why = late();
  comm_->end({Ending::By::us, why});
  return why;
}

// The connector may have its comm already, and NCCL does not close a listener whose accept failed.
Error ListenCommImpl::late() const {
  return Error(
      Code::timeout, "accepting",
      format("%s began to connect and did not finish within %lld ms", comm_->peering().peer()->name().c_str(),
             static_cast<long long>(runtime_->net().config().connectTimeout.count())));
}

Status ListenCommImpl::onRequest(const control::Request& request) {
  TRY(const ConnectRequest wanted, ConnectRequest::decode(request.body));
  if (!wanted.refusal.empty()) return Error(Code::remote, request.peer->name() + " reports", wanted.refusal);
  TRY(engine_, runtime_->engineFor(context_, device_));
  deadline_ = runtime_->net().clock().now() + runtime_->net().config().connectTimeout;
  EngineEntry in(*engine_, EngineEntry::wait);
  TRY(Peering * peering, engine_->peering(request.peer, wanted.engine, wanted.rails));
  CommOptions options{runtime_, context_, engine_, peering, device_};
  TRY(comm_, RecvCommImpl::create(std::move(options), 0));
  ConnectReply reply;
  reply.comm = comm_->number();
  reply.window = comm_->takeWindow();
  reply.half = peering->half();
  runtime_->hub().reply(request, reply.encode());
  return {};
}

}  // namespace weft::core
