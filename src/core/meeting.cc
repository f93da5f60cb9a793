// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/meeting.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/log.h"

namespace weft::core {

namespace {

constexpr const char* kStateNames[] = {"listening", "refusing", "calling", "looking",
                                       "joining",   "met",      "failed"};
static_assert(std::size(kStateNames) == static_cast<size_t>(Meeting::State::failed) + 1);

const char* nameOf(Meeting::State state) {
  return kStateNames[static_cast<size_t>(state)];
}

}  // namespace

// What is not here changes nothing.
constexpr Meeting::Change Meeting::kChanges[] = {
    {State::calling, Event::cannot, State::refusing},  {State::calling, Event::replied, State::looking},
    {State::looking, Event::commMade, State::joining}, {State::listening, Event::commMade, State::joining},
    {State::joining, Event::cameUp, State::met},       {State::listening, Event::failed, State::failed},
    {State::refusing, Event::failed, State::failed},   {State::calling, Event::failed, State::failed},
    {State::looking, Event::failed, State::failed},    {State::joining, Event::failed, State::failed},
};

void Meeting::apply(Event event) {
  for (const Change& change : kChanges) {
    if (change.from != state_ || change.event != event) continue;
    state_ = change.to;
    WEFT_LOG(trace, "meeting with %s: %s -> %s", target_.c_str(), nameOf(change.from), nameOf(change.to));
    return;
  }
}

Meeting::Meeting(Runtime& runtime, const Context* context, int device, Role role)
    : runtime_(runtime),
      context_(context),
      device_(device),
      role_(role),
      state_(role == Role::asks ? State::calling : State::listening) {}

Meeting::~Meeting() {
  if (engine_ && role_ == Role::asks) engine_->connecting.end();
}

void Meeting::startWaiting() {
  deadline_ = runtime_.net().clock().now() + runtime_.net().config().connectTimeout;
}

bool Meeting::isLate() const {
  return runtime_.net().clock().now() > deadline_;
}

// The other end may have its comm already, and NCCL does not close a listener whose accept failed: so the end
// that answers has to say it.
Error Meeting::late() const {
  const auto limit = static_cast<long long>(runtime_.net().config().connectTimeout.count());
  if (role_ == Role::asks)
    return {Code::timeout, "connecting",
            format("the lanes to %s did not come up within %lld ms; WEFT_CONNECT_TIMEOUT sets the limit",
                   target_.c_str(), limit)};
  return {Code::timeout, "accepting",
          format("%s began to connect and did not finish within %lld ms", target_.c_str(), limit)};
}

// The end that asks:

std::shared_ptr<Meeting> Meeting::ask(Runtime& runtime, const ContextRef& context, int device,
                                      const control::Handle& handle) {
  auto meeting = std::make_shared<Meeting>(runtime, context.get(), device, Role::asks);
  meeting->startWaiting();
  meeting->called(runtime.net().clock().now());
  meeting->call(context, handle);
  return meeting;
}

void Meeting::called(TimePoint now) {
  giveUpAt_ = now + 2 * runtime_.net().config().connectTimeout;
  if (engine_) engine_->connecting.asked(giveUpAt_);
}

bool Meeting::belongsTo(const Context* context, int device, uint32_t listener) const {
  return context_ == context && device_ == device && listener_ == listener;
}

// From here on none of the engine's peerings ends for being idle: the peer may answer with one.
void Meeting::hold(std::shared_ptr<Engine> engine) {
  EngineEntry in(*engine, EngineEntry::wait);
  engine_ = std::move(engine);
  engine_->connecting.begin();
  engine_->connecting.asked(giveUpAt_);
}

void Meeting::call(const ContextRef& context, const control::Handle& handle) {
  listener_ = handle.listener;
  if (!handle.addresses.empty()) target_ = handle.addresses.front().text();
  ConnectRequest request;
  if (auto engine = runtime_.engineFor(context, device_)) {
    hold(engine.take());
    request.engine = engine_->id();
    request.rails = static_cast<uint16_t>(engine_->railCount());
  } else {
    reason_ = std::make_unique<Error>(engine.takeError());
    request.refusal = reason_->message();
    deadline_ = std::min(deadline_, runtime_.net().clock().now() + runtime_.net().config().closeTimeout);
    apply(Event::cannot);
  }
  call_ = runtime_.hub().call(handle, request.encode());
}

Result<std::unique_ptr<SendComm>> Meeting::stepAsking(const std::shared_ptr<Runtime>& runtime,
                                                      const ContextRef& context) {
  auto stepped = state_ == State::refusing ? refuse() : advance(runtime, context);
  if (!stepped) apply(Event::failed);
  return stepped;
}

// The other end would wait for us until its deadline. A short one is ours: it may not be accepting yet.
Result<std::unique_ptr<SendComm>> Meeting::refuse() const {
  const bool told = call_->state() != control::Call::State::pending;
  if (told || isLate()) return *reason_;
  return std::unique_ptr<SendComm>();
}

Result<std::unique_ptr<SendComm>> Meeting::advance(const std::shared_ptr<Runtime>& runtime,
                                                   const ContextRef& context) {
  if (!sending_) {
    const auto call = call_->state();
    if (call == control::Call::State::failed) return call_->error();
    if (call == control::Call::State::pending) return std::unique_ptr<SendComm>();
    if (state_ == State::calling) startWaiting();
    apply(Event::replied);
    TRY(readReply());
    runtime_.hub().runInline();
  }
  const bool last = isLate();
  if (state_ == State::looking) {
    poll(last);
    if (last) TRY(readReply());
  }
  if (sending_ && isUp(last)) {
    if (sending_->failed()) return sending_->stickyError();
    apply(Event::cameUp);
    sending_->keepAlive(runtime, context);
    return std::unique_ptr<SendComm>(std::move(sending_));
  }
  if (last) return late();
  return std::unique_ptr<SendComm>();
}

Status Meeting::readReply() {
  TRY(const ConnectReply reply, ConnectReply::decode(call_->replyBody()));
  EngineEntry in(*engine_, EngineEntry::wait);
  Status opened = open(reply);
  if (!opened)
    tellEngine(*call_->peer(), {reply.half.engine, engine_->id()}, MessageType::failed,
               FailedMessage{reply.comm, opened.error().message()});
  return opened;
}

// Again and again, until it is known whether the two share memory: that decides what our half says.
Status Meeting::open(const ConnectReply& reply) {
  TRY(Peering * peering,
      engine_->peering(call_->peer(), reply.half.engine, reply.half.rails, reply.half.life));
  if (!knowsSharing(*peering, reply.half)) return {};
  TRY(peering->adopt(reply.half));
  CommOptions options{nullptr, nullptr, engine_, peering, device_};
  TRY(sending_, SendCommImpl::create(std::move(options), reply.comm, reply.window));
  apply(Event::commMade);
  OpenMessage message;
  message.comm = reply.comm;
  message.sender = sending_->number();
  message.half = peering->half();
  message.ringMemory = peering->noticeOf(*sending_->ring().region(), 0);
  message.ringOffset = sending_->ring().offset();
  peering->tell(MessageType::open, message);
  return {};
}

// The end that asks has the other one's address from the reply, and sends its own ahead of everything else:
// so the other end has looked by the time it reads our half. Where another connection has asked already, or
// the peering stands, nothing is left to ask.
bool Meeting::knowsSharing(Peering& peering, const PeeringInfo& half) const {
  SameHost& question = peering.sameHost();
  if (peering.stage() != Stage::opening || question.decided()) return true;
  peering.hearOf(half.life);
  if (question.state() == SameHost::State::offered) {
    const Bytes ours = question.address();
    question.ask(half.localAddress);
    if (!question.decided()) peering.tell(MessageType::localAddress, LaneMessage{0, 0, {}, ours});
  }
  return question.decided();
}

void Meeting::poll(bool last) const {
  EngineEntry in(*engine_, last ? EngineEntry::wait : EngineEntry::tryOnce);
  if (in) engine_->progress();
}

// NCCL calls now and then, and another thread may be inside the engine each time. So the look on which a
// timeout depends is taken in any case: the connection may be up long since.
bool Meeting::isUp(bool last) const {
  EngineEntry in(*engine_, last ? EngineEntry::wait : EngineEntry::tryOnce);
  if (in) engine_->progress();
  return sending_->failed() || (in && connected());
}

// A peer that has accepted and closed already has no use for lanes, so ours need not come up. NCCL connects
// more than it uses, and a comm without use hears nothing of that before it sends.
bool Meeting::connected() const {
  return sending_->peering().ready() || sending_->closedByPeer();
}

// The end that answers:

Result<std::unique_ptr<RecvComm>> Meeting::stepAnswering(const std::shared_ptr<Runtime>& runtime,
                                                         const ContextRef& context,
                                                         control::Listener& listener) {
  runtime_.hub().runInline();
  if (state_ == State::listening) {
    TRY(auto request, listener.take());
    if (!request) return std::unique_ptr<RecvComm>();
    if (Status status = answer(runtime, context, *request); !status) {
      runtime_.hub().refuse(*request, status.error());
      apply(Event::failed);
      return status.takeError();
    }
    runtime_.hub().runInline();
  }
  return join();
}

Status Meeting::answer(const std::shared_ptr<Runtime>& runtime, const ContextRef& context,
                       const control::Request& request) {
  target_ = request.peer->name();
  TRY(const ConnectRequest wanted, ConnectRequest::decode(request.body));
  if (!wanted.refusal.empty()) return Error(Code::remote, target_ + " reports", wanted.refusal);
  TRY(engine_, runtime_.engineFor(context, device_));
  startWaiting();
  EngineEntry in(*engine_, EngineEntry::wait);
  TRY(Peering * peering, engine_->peering(request.peer, wanted.engine, wanted.rails));
  CommOptions options{runtime, context, engine_, peering, device_};
  TRY(receiving_, RecvCommImpl::create(std::move(options), 0));
  apply(Event::commMade);
  ConnectReply reply;
  reply.comm = receiving_->number();
  reply.window = receiving_->takeWindow();
  reply.half = peering->half();
  runtime_.hub().reply(request, reply.encode());
  return {};
}

// As for the end that asks: the look on which a timeout depends is taken in any case.
Result<std::unique_ptr<RecvComm>> Meeting::join() {
  const bool last = isLate();
  EngineEntry in(*engine_, last ? EngineEntry::wait : EngineEntry::tryOnce);
  if (in) engine_->progress();
  if (!receiving_->failed()) {
    if (in && receiving_->stage() != Stage::opening && receiving_->peering().ready()) {
      apply(Event::cameUp);
      return std::unique_ptr<RecvComm>(std::move(receiving_));
    }
    if (!last) return std::unique_ptr<RecvComm>();
    receiving_->end({Ending::By::us, late()});
  }
  reason_ = std::make_unique<Error>(receiving_->stickyError());
  apply(Event::failed);
  return *reason_;
}

Listening::Listening(std::shared_ptr<Runtime> runtime, ContextRef context, int device,
                     std::unique_ptr<control::Listener> listener)
    : runtime_(std::move(runtime)),
      context_(std::move(context)),
      device_(device),
      listener_(std::move(listener)) {}

Result<std::unique_ptr<RecvComm>> Listening::step() {
  if (meetings_.empty() || !meetings_.back()->isListening())
    meetings_.push_back(
        std::make_unique<Meeting>(*runtime_, context_.get(), device_, Meeting::Role::answers));
  for (size_t i = 0; i < meetings_.size(); i++) {
    if (meetings_[i]->hasFailed()) continue;
    auto comm = meetings_[i]->stepAnswering(runtime_, context_, *listener_);
    if (comm && !*comm) continue;
    if (meetings_[i]->isOver()) meetings_.erase(meetings_.begin() + static_cast<ptrdiff_t>(i));
    return comm;
  }
  return std::unique_ptr<RecvComm>();
}

}  // namespace weft::core
