// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/world/hub.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/log.h"
#include "src/base/reserve.h"

namespace weft::world {

namespace {

using control::Call;
using Fate = WorldHub::CallState;

std::string processName(int rank) {
  return format("rank%d pid %d", rank, 1000 + rank);
}

class WorldCall final : public Call {
 public:
  WorldCall(std::shared_ptr<Fate> fate, std::function<void()> forget)
      : fate_(std::move(fate)), forget_(std::move(forget)) {}
  ~WorldCall() override { forget_(); }
  State state() const override { return fate_->state; }
  control::PeerRef peer() const override { return fate_->peer; }
  const Bytes& replyBody() const override { return fate_->body; }
  Error error() const override { return *fate_->why; }

 private:
  std::shared_ptr<Fate> fate_;
  std::function<void()> forget_;
};

class WorldListener final : public control::Listener {
 public:
  WorldListener(ControlNet& net, WorldHub& hub, uint32_t id) : net_(net), hub_(hub.number()) {
    handle_.process = hub.incarnation();
    handle_.listener = id;
    handle_.addresses = {SocketAddress::loopback(static_cast<uint16_t>(1000 + hub.rank()))};
  }
  ~WorldListener() override {
    if (WorldHub* hub = net_.find(hub_)) hub->closeListener(handle_.listener);
  }
  const control::Handle& handle() const override { return handle_; }
  Result<std::optional<control::Request>> take() override {
    WorldHub* hub = net_.find(hub_);
    if (!hub || hub->requests(handle_.listener).empty()) return std::optional<control::Request>();
    auto& requests = hub->requests(handle_.listener);
    std::optional<control::Request> first(std::move(requests.front()));
    requests.pop_front();
    return first;
  }

 private:
  ControlNet& net_;
  const uint64_t hub_;
  control::Handle handle_;
};

}  // namespace

// Peers:

WorldPeer::WorldPeer(WorldHub& hub, const WorldHub& other, uint64_t link)
    : hub_(&hub),
      other_(other.number()),
      link_(link),
      rank_(other.rank()),
      incarnation_(other.incarnation()),
      name_(processName(other.rank())),
      fingerprint_(other.options().fingerprint),
      processHeard_(hub.net().scheduler().now()),
      kernelHeard_(processHeard_) {}

void WorldPeer::send(uint16_t type, Bytes body) {
  if (!hub_) return;
  hub_->net().carry(*hub_, other_,
                    [from = hub_->number(), link = link_, type, body = std::move(body)](WorldHub& there) {
                      there.bring(from, link, type, body);
                    });
}

void WorldPeer::die(const Error& reason) {
  if (!alive_) return;
  reason_ = reason;
  alive_ = false;
  hub_ = nullptr;
}

// As src/control/link.cc watches: the peer's kernel and its process apart. Time in which this process was
// itself stopped is not counted.
std::optional<Error> WorldPeer::look(TimePoint now, Nanoseconds late) {
  const Config& config = hub_->options().config;
  const bool reached = !hub_->net().isCut(hub_->rank(), rank_);
  const bool speaks = reached && !hub_->net().isStopped(rank_);
  kernelHeard_ = reached ? now : std::min(kernelHeard_ + late, now);
  processHeard_ = std::min(processHeard_ + late, now);
  const Nanoseconds silence = now - processHeard_;
  if (speaks && !answers_) settlesAt_ = now + control::kSettling * silence;
  if (speaks) processHeard_ = now;
  answers_ = speaks || silence < config.peerSilentWarn * 5 / 8;
  if (reached && !speaks && !std::exchange(warned_, warned_ || silence >= config.peerSilentWarn) && warned_)
    WEFT_LOG(warn, "%s has not answered for %d ms, but its host does", name_.c_str(),
             static_cast<int>(silence / Milliseconds(1)));
  settled_ = now >= settlesAt_;
  if (reached && !speaks && silence > config.peerTimeout)
    return Error(Code::remote, "control link to " + name_, "its process does not answer; its kernel does");
  if (now - std::max(kernelHeard_, seenOnFabric_) > config.kernelTimeout)
    return Error(Code::remote, "control link to " + name_, "its host is silent");
  return std::nullopt;
}

// The hub:

WorldHub::WorldHub(ControlNet& net, int rank, uint64_t number, control::HubOptions options)
    : net_(net), rank_(rank), number_(number), options_(std::move(options)) {
  std::memcpy(incarnation_.data(), &number_, sizeof number_);
  incarnation_[8] = static_cast<std::byte>(net.scheduler().random().next());
}

uint64_t WorldHub::numberOf(const control::Incarnation& process) {
  uint64_t number = 0;
  std::memcpy(&number, process.data(), sizeof number);
  return number;
}

void WorldHub::begin() {
  nextLook_ = net_.scheduler().now() + pingEvery();
  task_ = &net_.scheduler().start(format("control %d.%d", rank_, static_cast<int>(number_)), rank_,
                                  [this] { thread(); });
}

// Says goodbye, and waits for its thread, as every hub does.
WorldHub::~WorldHub() {
  const Error closed(Code::unavailable, "control links", "this process closed them");
  for (const auto& [hub, peer] : peers_) {
    net_.carry(*this, hub, [from = number_, link = peer->link()](WorldHub& there) {
      there.peerGone(from, link, "the process closed its control links");
    });
    net_.endLink(number_, hub, peer->link());
    peer->die(closed);
  }
  for (auto& [id, listener] : std::exchange(listeners_, {})) closeListener(id);
  net_.leave(*this);
  stopping_ = true;
  net_.scheduler().wake(*task_, net_.scheduler().now());
  while (!task_->over()) net_.scheduler().sleep(std::chrono::microseconds(1));
}

Nanoseconds WorldHub::pingEvery() const {
  return std::min(options_.config.kernelTimeout / 3, options_.config.peerSilentWarn / 4);
}

void WorldHub::thread() {
  while (!stopping_) {
    if (!inTurn_) turn();
    if (!stopping_) net_.scheduler().sleepUntil(nextDue());
  }
}

void WorldHub::runInline() {
  if (inTurn_ || stopping_) return;
  turn();
  net_.scheduler().wake(*task_, nextDue());
}

// As the control thread does, whoever's thread it is on.
void WorldHub::turn() {
  const MustNotFail nobodyToTell;
  inTurn_ = true;
  const size_t mails = mail_.size();
  for (size_t i = mails; i > 0 && !stopping_; i--) {
    const auto mail = std::move(mail_.front());
    mail_.pop_front();
    mail(*this);
  }
  if (!stopping_) expireCalls();
  if (!stopping_) look();
  if (!stopping_) tick();
  inTurn_ = false;
  if (mails > 0) net_.heard(rank_);
}

TimePoint WorldHub::nextDue() const {
  const TimePoint soon = net_.scheduler().now() + std::chrono::microseconds(1);
  if (!mail_.empty() || tickWanted_) return soon;
  TimePoint due = std::min(nextTick_, nextLook_);
  if (!deadlines_.empty()) due = std::min(due, *deadlines_.begin());
  return std::max(due, soon);
}

void WorldHub::tick() {
  const TimePoint now = net_.scheduler().now();
  if (!std::exchange(tickWanted_, false) && now < nextTick_) return;
  const auto pause = options_.handler ? options_.handler->onTick(now) : Milliseconds(1000);
  nextTick_ = now + std::max(pause, Milliseconds(1));
}

void WorldHub::look() {
  const TimePoint now = net_.scheduler().now();
  if (now < nextLook_) return;
  const Nanoseconds late = now - nextLook_;
  nextLook_ = now + pingEvery();
  const auto peers = peers_;  // to bury one is to change them
  for (const auto& [hub, peer] : peers) {
    if (!peer->alive()) continue;
    if (const auto why = peer->look(now, late)) bury(hub, *why);
  }
}

void WorldHub::take(std::function<void(WorldHub&)> mail) {
  mail_.push_back(std::move(mail));
  Scheduler& scheduler = net_.scheduler();
  scheduler.wake(*task_, scheduler.now() + Nanoseconds(1000 + scheduler.random().below(20'000)));
}

void WorldHub::wake() {
  tickWanted_ = true;
  if (task_) net_.scheduler().wake(*task_, net_.scheduler().now() + std::chrono::microseconds(5));
}

void WorldHub::post(std::function<void()> work) {
  take([work = std::move(work)](WorldHub&) { work(); });
}

// Null: what came is older than what is known of the peer.
std::shared_ptr<WorldPeer> WorldHub::peerOn(uint64_t hub, uint64_t link) {
  const auto known = peers_.find(hub);
  if (known != peers_.end() && known->second->link() == link) return known->second;
  if (known != peers_.end() && known->second->link() > link) return nullptr;
  if (known != peers_.end())
    bury(hub, Error(Code::remote, "control link to " + known->second->name(), "the peer started it over"));
  const WorldHub* other = net_.find(hub);
  if (!other || lastDead_[hub] >= link) return nullptr;
  return peers_[hub] = std::make_shared<WorldPeer>(*this, *other, link);
}

// The books are in order before anybody is told.
void WorldHub::bury(uint64_t hub, const Error& reason) {
  const auto found = peers_.find(hub);
  if (found == peers_.end()) return;
  const auto peer = found->second;
  peers_.erase(found);
  lastDead_[hub] = peer->link();
  net_.endLink(number_, hub, peer->link());
  net_.scheduler().journal().note(net_.scheduler().now(), rank_, "gives up a peer: " + reason.message());
  net_.carry(*this, hub, [from = number_, link = peer->link()](WorldHub& there) {
    there.peerGone(from, link, "the peer gave this process up");
  });
  std::erase_if(asked_, [&](const auto& entry) { return entry.second.hub == hub; });
  for (auto& [id, requests] : listeners_)
    std::erase_if(requests, [&](const control::Request& request) { return request.peer == peer; });
  peer->die(reason);
  failCalls(hub, reason);
  if (options_.handler) options_.handler->onPeerDead(peer, reason);
  wake();
}

void WorldHub::rankGone(int rank, const char* why) {
  const auto peers = peers_;
  for (const auto& [hub, peer] : peers)
    if (peer->rank() == rank) bury(hub, Error(Code::remote, "control link to " + peer->name(), why));
}

void WorldHub::allGone(const char* why) {
  const auto peers = peers_;
  for (const auto& [hub, peer] : peers)
    bury(hub, Error(Code::remote, "control link to " + peer->name(), why));
}

void WorldHub::peerGone(uint64_t hub, uint64_t link, const char* why) {
  const auto found = peers_.find(hub);
  if (found == peers_.end() || found->second->link() != link) return;
  bury(hub, Error(Code::remote, "control link to " + found->second->name(), why));
}

void WorldHub::bring(uint64_t hub, uint64_t link, uint16_t type, const Bytes& body) {
  const auto peer = peerOn(hub, link);
  if (!peer || !options_.handler) return;
  // Not the size: the reason of a failure may name a process by its number, which has more digits or fewer.
  net_.scheduler().journal().mix(uint64_t{type} << 16 | static_cast<uint64_t>(rank_));
  options_.handler->onMessage(peer, type, body);
  tickWanted_ = true;
}

// Calls:

Result<std::unique_ptr<control::Listener>> WorldHub::listen() {
  (void)listeners_[++lastListener_];
  return std::unique_ptr<control::Listener>(std::make_unique<WorldListener>(net_, *this, lastListener_));
}

std::unique_ptr<Call> WorldHub::call(const control::Handle& handle, Bytes body) {
  auto fate = std::make_shared<Fate>();
  const uint64_t id = ++lastCall_;
  auto made = std::make_unique<WorldCall>(fate, [net = &net_, hub = number_, id] {
    if (WorldHub* here = net->find(hub)) here->forget(id);
  });
  const WorldHub* target = net_.find(handle.process);
  const uint64_t to = target ? target->number() : 0;
  Scheduler& scheduler = net_.scheduler();
  calls_[id] = {fate, to, scheduler.now() + options_.config.connectTimeout};
  deadlines_.insert(calls_[id].deadline);
  if (!target || net_.isDead(target->rank()) || net_.isDead(rank_)) {
    scheduler.after(std::chrono::milliseconds(1), [net = &net_, hub = number_, id] {
      if (WorldHub* here = net->find(hub))
        here->failCall(id, Error(Code::remote, "connecting", "nobody listens there: connection refused"));
    });
    return made;
  }
  const uint64_t link = net_.linkBetween(number_, to);
  if (!peerOn(to, link)) return made;  // until its deadline
  net_.carry(*this, to,
             [from = number_, link, listener = handle.listener, id, body = std::move(body)](WorldHub& there) {
               there.bringCall(from, link, listener, id, body);
             });
  scheduler.wake(*task_, nextDue());
  return made;
}

void WorldHub::forget(uint64_t call) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  const auto deadline = deadlines_.find(found->second.deadline);
  if (deadline != deadlines_.end()) deadlines_.erase(deadline);  // memory may have run out before it was kept
  calls_.erase(found);
}

void WorldHub::bringCall(uint64_t hub, uint64_t link, uint32_t listener, uint64_t id, Bytes body) {
  const auto peer = peerOn(hub, link);
  if (!peer) return;
  const auto found = listeners_.find(listener);
  if (found == listeners_.end()) {
    net_.carry(*this, hub, [from = number_, link, id, rank = rank_](WorldHub& there) {
      there.bringRefusal(from, link, id,
                         Error(Code::remote, "connecting to " + processName(rank), "listener closed"));
    });
    return;
  }
  asked_[++lastRequest_] = {hub, link, id, listener};
  found->second.push_back({peer, lastRequest_, std::move(body)});
}

void WorldHub::reply(const control::Request& request, Bytes body) {
  const auto found = asked_.find(request.id);
  if (found == asked_.end()) return;
  const Asked asked = found->second;
  asked_.erase(found);
  net_.carry(*this, asked.hub,
             [from = number_, link = asked.link, id = asked.call, body = std::move(body)](WorldHub& there) {
               there.bringAnswer(from, link, id, body);
             });
}

void WorldHub::refuse(const control::Request& request, const Error& why) {
  const auto found = asked_.find(request.id);
  if (found == asked_.end()) return;
  const Asked asked = found->second;
  asked_.erase(found);
  net_.carry(*this, asked.hub, [from = number_, link = asked.link, id = asked.call, why](WorldHub& there) {
    there.bringRefusal(from, link, id, why);
  });
}

void WorldHub::closeListener(uint32_t id) {
  listeners_.erase(id);
  const Error closed(Code::remote, "connecting to " + processName(rank_), "listener closed");
  for (auto it = asked_.begin(); it != asked_.end();) {
    if (it->second.listener != id) {
      ++it;
      continue;
    }
    net_.carry(*this, it->second.hub,
               [from = number_, link = it->second.link, call = it->second.call, closed](WorldHub& there) {
                 there.bringRefusal(from, link, call, closed);
               });
    it = asked_.erase(it);
  }
}

void WorldHub::bringAnswer(uint64_t hub, uint64_t link, uint64_t id, Bytes body) {
  const auto peer = peerOn(hub, link);
  const auto found = calls_.find(id);
  if (!peer || found == calls_.end()) return;
  if (const auto fate = found->second.state.lock()) {
    fate->peer = peer;
    fate->body = std::move(body);
    fate->state = Call::State::replied;
  }
  forget(id);
}

void WorldHub::bringRefusal(uint64_t hub, uint64_t link, uint64_t id, const Error& why) {
  if (peerOn(hub, link)) failCall(id, why);
}

void WorldHub::failCall(uint64_t id, const Error& why) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  if (const auto fate = found->second.state.lock()) {
    fate->why = why;
    fate->state = Call::State::failed;
  }
  forget(id);
}

void WorldHub::failCalls(uint64_t to, const Error& why) {
  const auto calls = calls_;
  for (const auto& [id, call] : calls)
    if (call.to == to) failCall(id, why);
}

// As ControlLoop does: a peer that is linked may take longer to accept.
void WorldHub::expireCalls() {
  const TimePoint now = net_.scheduler().now();
  const Config& config = options_.config;
  if (deadlines_.empty() || *deadlines_.begin() > now) return;
  std::vector<uint64_t> late;
  for (auto& [id, call] : calls_) {
    if (call.deadline > now) continue;
    const bool prolong =
        !call.prolonged && peers_.count(call.to) && config.acceptTimeout > config.connectTimeout;
    if (prolong) {
      deadlines_.erase(deadlines_.find(call.deadline));
      call.deadline += config.acceptTimeout - config.connectTimeout;
      deadlines_.insert(call.deadline);
    }
    if (!prolong) late.push_back(id);
    call.prolonged = true;
  }
  for (const uint64_t id : late) failCall(id, Error(Code::timeout, "connecting", "no answer in time"));
}

}  // namespace weft::world
