// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/agg/daemon.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/socket.h>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/control/addresses.h"

// The daemon's two threads, its errands, and the way of a request from a guest to a group.
namespace weft::agg {

using coll::JoinAnswer;
using coll::JoinRequest;
using coll::Patience;

namespace {

constexpr Milliseconds kTick{20};     // between two looks at members that may have left
constexpr Milliseconds kIdle{5};      // between two looks for a group where there is none
constexpr Milliseconds kToAsk{2000};  // the time that a guest has until its request is here
// What one that is turned away may still take and say, until it hangs up.
constexpr Milliseconds kToLeave{1000};
constexpr size_t kMostReadLeaving = 16 * 1024;
constexpr const char* kStarting = "starting weft-aggd";

// A want of memory ends one group, and not the daemon with the groups of all others.
template <class Work>
Status withoutThrowing(Work work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return Error(Code::resources, "aggregating", error.what());
  }
}

// Without a secret, the port would serve every process that reaches it, with this host's memory and
// processors.
Status checkReach(const std::string& secret, const std::string& listen, const SocketAddress& address) {
  if (!secret.empty() || address.isLoopback()) return {};
  return Error(Code::config, kStarting,
               "without a secret it serves this host alone, and other hosts reach " + listen +
                   "; give a secret with --secret @FILE or WEFT_AGGD_SECRET (itself, or @FILE whose first "
                   "line it is), "
                   "or --listen 127.0.0.1:PORT");
}

// ADDRESS:PORT by which other hosts reach the listener. A host's own name may resolve nowhere, or on this
// host alone, so it is none.
Result<std::string> placeOf(const SocketAddress& bound, const Config& config) {
  const auto ip = bound.ip();
  if (std::any_of(ip.begin(), ip.end(), [](std::byte byte) { return byte != std::byte{0}; }))
    return bound.text();
  TRY(const auto interfaces, localInterfaces());
  TRY(const auto addresses, control::chooseAddresses(interfaces, config.socketIfname));
  return addresses.front().withPort(bound.port()).text();
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::start(DaemonOptions options) {
  auto daemon = std::make_unique<Daemon>(std::move(options));
  TRY(daemon->secret_, coll::readSecret(daemon->options_.secret));
  TRY(const Protection protection, readProtection(daemon->options_.context->net().config()));
  daemon->key_ = coll::joinKeyOf(protection, daemon->secret_);
  if (daemon->options_.listen.empty())
    daemon->options_.listen = daemon->secret_.empty() ? "127.0.0.1:0" : "0.0.0.0:0";
  TRY(daemon->listen());
  Daemon* raw = daemon.get();
  const Threads& threads = *raw->options_.threads;
  TRY(daemon->moving_, threads.start("weft-agg-data", [raw] { raw->moveData(); }));
  TRY(daemon->accepting_, threads.start("weft-agg-join", [raw] { raw->accept(); }));
  return daemon;
}

// Errands close the groups that are left, so that the end takes as long as the slowest member, and not as
// long as all members together.
Daemon::~Daemon() {
  stopping_ = true;
  if (accepting_) accepting_->join();
  talks_.finish();
  if (moving_) moving_->join();
  for (auto& [id, forming] : forming_) giveUp(std::move(forming), "it is being shut down");
  {
    const std::lock_guard lock(mutex_);
    groups_.splice(groups_.end(), fresh_);
    while (!groups_.empty()) {
      endings_.push_back({std::move(groups_.front()), {}});
      groups_.pop_front();
    }
    beginEnding();
  }
  closings_.finish();
}

void Daemon::kill() {
  stopping_ = true;
  if (moving_) std::exchange(moving_, nullptr)->join();
  groups_.clear();
}

Status Daemon::listen() {
  TRY(const auto addresses, resolve(options_.listen, Resolving::toListen));
  TRY(checkReach(secret_, options_.listen, addresses.front()));
  TRY(const PortRange ports, parsePortRange(options_.context->net().config().portRange));
  TRY(listener_, listenOn(addresses.front(), kStarting, Hears::bothFamilies, ports));
  const SocketAddress bound = localAddress(listener_.get());
  port_ = bound.port();
  if (options_.name.empty()) {
    TRY(options_.name, placeOf(bound, options_.context->net().config()));
  }
  return {};
}

// Hears the guests until their requests are whole, all guests at once and without waiting for any of them.
void Daemon::accept() {
  const auto turn = [&]() -> Status {
    talks_.reap();
    closings_.reap();
    dropForming(clock().now());
    awaitGuests();
    letIn();
    std::erase_if(guests_, [&](Newcomer& newcomer) { return !hear(newcomer); });
    beginTalks();
    return {};
  };
  while (!stopping_) (void)withoutThrowing(turn);
}

void Daemon::awaitGuests() {
  const int most = waiting_.empty() ? 50 : 1;  // milliseconds
  std::vector<pollfd> sockets = {{listener_.get(), POLLIN, 0}};
  for (const Newcomer& newcomer : guests_) {
    const auto events = static_cast<short>(newcomer.unsaid.empty() ? POLLIN : POLLIN | POLLOUT);
    sockets.push_back({newcomer.guest.socket().get(), events, 0});
  }
  (void)::poll(sockets.data(), sockets.size(), most);
}

// A bounded number in a turn, so that a flood keeps nobody from being heard.
void Daemon::letIn() {
  constexpr int kInATurn = 64;
  const TimePoint now = clock().now();
  for (int turn = 0; turn < kInATurn; turn++) {
    auto link = acceptOne(listener_.get(), {.keepAlive = true});
    if (!link) return makeRoom(link.error().errnum());
    if (guests_.size() >= options_.limits.guests) dropGuest();
    std::string host = remoteAddress(link->get()).ipText();
    guests_.push_back({Guest(link.take(), now + kToAsk, coll::kOpeningBytes), std::move(host)});
  }
}

// The oldest guest of the address that has most of them goes: who fills the table pushes out nobody else.
void Daemon::dropGuest() {
  std::map<std::string, size_t> byHost;
  for (const Newcomer& newcomer : guests_) byHost[newcomer.host]++;
  const auto most = std::max_element(byHost.begin(), byHost.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == byHost.end()) return;
  guests_.erase(std::find_if(guests_.begin(), guests_.end(),
                             [&](const Newcomer& one) { return one.host == most->first; }));
}

// Without descriptors the connection stays in the queue, and the listener readable: a guest makes room, or a
// pause keeps this thread from spinning.
void Daemon::makeRoom(int errnum) {
  const bool isShort = errnum == EMFILE || errnum == ENFILE || errnum == ENOBUFS || errnum == ENOMEM;
  if (!isShort) return;
  if (guests_.empty()) return clock().sleep(kTick);
  dropGuest();
}

// Who is turned away hears the end behind the last byte.
bool Daemon::Newcomer::goOnSaying() {
  if (unsaid.empty()) return true;
  const IoResult sent = sendSome(guest.socket().get(), unsaid);
  if (sent.io == Io::closed) return false;
  unsaid.erase(unsaid.begin(), unsaid.begin() + static_cast<ptrdiff_t>(sent.bytes));
  if (unsaid.empty() && state == State::leaving) (void)::shutdown(guest.socket().get(), SHUT_WR);
  return true;
}

// False: it is a guest no longer. One that speaks a version which waits to be greeted is told ours in the
// end.
bool Daemon::hear(Newcomer& newcomer) {
  if (!newcomer.goOnSaying()) return false;
  while (true) {
    const Guest::Heard heard = newcomer.guest.hear(clock().now());
    if (heard == Guest::Heard::nothing) return true;
    if (heard == Guest::Heard::message && step(newcomer)) continue;
    const bool isMute = heard == Guest::Heard::gone && newcomer.state == Newcomer::State::opening;
    if (isMute) (void)newcomer.guest.say(coll::refusal());
    return false;
  }
}

// Goes on to the next state, with the message that the guest is to send there. False: there is none.
bool Daemon::step(Newcomer& newcomer) {
  switch (newcomer.state) {
    case Newcomer::State::opening:
      return meet(newcomer);
    case Newcomer::State::length: {
      const auto rest = coll::restOf(newcomer.guest.bytes());
      if (!rest) return false;
      newcomer.enter(Newcomer::State::request, *rest);
      return true;
    }
    case Newcomer::State::request:
      judge(newcomer);
      return false;
    case Newcomer::State::leaving:
      break;  // it does not stop talking
  }
  return false;
}

// The answer proves this daemon. The guest proves nothing before its request, as its first message may be one
// that was overheard.
bool Daemon::meet(Newcomer& newcomer) {
  auto met = coll::meetRank(newcomer.guest.bytes(), key_);
  if (!met) return turnAway(newcomer, met.error());
  newcomer.seal = met->seal;
  newcomer.enter(Newcomer::State::length, coll::kLengthBytes);
  return newcomer.say(std::move(met->answer));
}

// What it hears is the same for all. Its bytes are read before the socket is closed, as a reset would destroy
// the refusal on its way.
bool Daemon::turnAway(Newcomer& newcomer, const Error& why) {
  refused_++;
  logFailure(why);
  newcomer.guest.allowUntil(clock().now() + kToLeave);
  newcomer.enter(Newcomer::State::leaving, kMostReadLeaving);
  return newcomer.say(coll::refusal());
}

// The answer to a request may have to wait for the guest or for the fabric, so an errand gives it. A request
// that does not open is of somebody who overheard another one, or was changed: it gets no answer.
void Daemon::judge(Newcomer& newcomer) {
  const auto said = newcomer.seal->open(newcomer.guest.bytes());
  if (!said) {
    refused_++;
    return logFailure(Error(Code::remote, "joining", newcomer.host + " sent a request that is not its own"));
  }
  const auto format = coll::decodeStatusRequest(*said);
  const auto request = coll::decodeJoinRequest(*said);
  auto link = std::make_shared<coll::JoinLink>(std::move(newcomer.guest.socket()), *newcomer.seal);
  if (format)
    waiting_.push_back(
        [this, link, how = static_cast<Format>(*format)] { logFailure(answerStatus(*link, how)); });
  else if (request)
    waiting_.push_back([this, link, request = *request] { logFailure(welcome(*link, request)); });
  else
    waiting_.push_back([this, link, why = request.error()] { logFailure(refuse(*link, why)); });
}

// Those that have proven themselves wait for each other only.
void Daemon::beginTalks() {
  while (!waiting_.empty() && talks_.count() < options_.limits.joining) {
    if (!talks_.start("weft-agg-talk", waiting_.front())) return;
    waiting_.pop_front();
  }
}

void Daemon::logFailure(const Status& status) const {
  if (!status) WEFT_LOG(info, "%s: %s", options_.name.c_str(), status.error().message().c_str());
}

// Drops groups that are not complete in time, and groups of which a member has left again.
void Daemon::dropForming(TimePoint now) {
  std::vector<std::pair<Forming, std::string>> dropped;
  {
    std::lock_guard lock(mutex_);
    for (auto entry = forming_.begin(); entry != forming_.end();) {
      std::string why = faultOf(entry->second, now);
      if (why.empty()) {
        ++entry;
        continue;
      }
      refused_++;
      dropped.emplace_back(std::move(entry->second), std::move(why));
      entry = forming_.erase(entry);
    }
  }
  for (auto& [forming, why] : dropped) giveUp(std::move(forming), why);
}

// The lock is held. Empty: the group may go on waiting for its members.
std::string Daemon::faultOf(const Forming& forming, TimePoint now) const {
  for (const Child& child : forming.children)
    if (!isLinked(child.link->fd())) return child.name + " left again";
  if (now <= forming.until) return {};
  return format("only %zu of %u ranks joined %s%s", forming.children.size(), forming.ranks,
                options_.name.c_str(), coll::kTooFewInTime);
}

// Telling members and closing their connections may have to wait for them, so an errand does both. Where no
// thread can be had, the members see only that their connections close.
void Daemon::giveUp(Forming forming, const std::string& why) {
  groupBytes_ -= forming.bytes;
  auto shared = std::make_shared<Forming>(std::move(forming));
  (void)closings_.start("weft-agg-refuse", [this, shared, why] {
    Patience patience(clock(), Milliseconds(200));
    for (Child& child : shared->children) (void)child.link->say(coll::Verdict{false, why}.encode(), patience);
    shared->children.clear();
  });
}

// An errand, for a member whose request says what cannot be.
Status Daemon::refuse(coll::JoinLink& link, const Error& why) {
  refused_++;
  const Patience patience(clock(), kToAsk);
  (void)link.say(JoinAnswer{false, why.detail(), {}}.encode(), patience);
  return why;
}

Status Daemon::answerStatus(coll::JoinLink& link, Format format) {
  const std::string text = status(format);
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  const Patience patience(clock(), kToAsk);
  return link.say(Bytes(bytes.begin(), bytes.end()), patience);
}

// A member that has heard nothing until it gives up takes this daemon for the one at fault, and not the
// members that are missing. So they have less time than it has.
Milliseconds Daemon::patienceFor(const JoinRequest& request) const {
  return std::min(options_.limits.patience, Milliseconds(request.waitMs) * 7 / 8);
}

// An errand. The member makes its half of the connection over the fabric at the same time. A member that does
// not make it holds up this thread only, for as long as a group may take to form.
Status Daemon::welcome(coll::JoinLink& link, const JoinRequest& request) {
  TRY(JoinAnswer answer, admit(request));
  Child child;
  Status connected = connect(link, request, &answer, &child);
  if (connected) return enter(request, std::move(child)), Status();
  const std::lock_guard lock(mutex_);
  const auto forming = forming_.find(request.group);
  if (answer.accepted && forming != forming_.end()) forming->second.admitted.erase(request.rank);
  return connected;
}

Status Daemon::connect(coll::JoinLink& link, const JoinRequest& request, JoinAnswer* answer, Child* child) {
  Patience patience(clock(), patienceFor(request));
  if (!answer->accepted) {
    TRY(link.say(answer->encode(), patience));
    return Error(Code::resources, "joining", request.name + " is refused: " + answer->reason);
  }
  TRY(auto listener, options_.context->net().listen(options_.context, options_.device, answer->handle));
  TRY(link.say(answer->encode(), patience));
  TRY(child->pipe,
      coll::openPipe(options_.context, options_.device, *listener, request.handle, request.name, patience));
  child->link = std::move(link);
  child->rank = request.rank;
  child->name = request.name;
  return {};
}

// The lock is held. Empty: the member may come in. A group's memory is reserved with its first member.
std::string Daemon::refusal(const JoinRequest& request) {
  const Limits& limits = options_.limits;
  if (draining_) return "it is being shut down";
  if (request.ranks > limits.ranks)
    return format("the group has %u ranks, and %zu is the most here (--fan-in)", request.ranks, limits.ranks);
  const auto known = forming_.find(request.group);
  if (known != forming_.end()) {
    const Forming& forming = known->second;
    if (forming.ranks != request.ranks || forming.chunkBytes != request.chunkBytes)
      return format("%s says %u ranks and chunks of %u, others of its group %u and %u", request.name.c_str(),
                    request.ranks, request.chunkBytes, forming.ranks, forming.chunkBytes);
    return forming.admitted.contains(request.rank) ? request.name + " has joined already" : "";
  }
  if (groupCount_ + forming_.size() >= limits.groups)
    return format("it has %zu groups, its quota (--max-groups)", limits.groups);
  const size_t bytes = AggGroup::memoryBytes(request.ranks, request.chunkBytes, options_.window);
  if (bytes > limits.bytes - std::min<size_t>(groupBytes_, limits.bytes))
    return format("its quota of memory, %zu bytes, does not have room for the group's %zu (--max-bytes)",
                  limits.bytes, bytes);
  return {};
}

// A member counts from here on, connected or not: quotas include groups that form.
Result<JoinAnswer> Daemon::admit(const JoinRequest& request) {
  std::lock_guard lock(mutex_);
  JoinAnswer answer;
  answer.reason = refusal(request);
  answer.accepted = answer.reason.empty();
  if (!answer.accepted) {
    refused_++;
    return answer;
  }
  const auto [entry, isNew] = forming_.try_emplace(request.group);
  Forming& forming = entry->second;
  if (isNew) {
    forming.bytes = AggGroup::memoryBytes(request.ranks, request.chunkBytes, options_.window);
    groupBytes_ += forming.bytes;
  }
  forming.admitted.insert(request.rank);
  forming.ranks = request.ranks;
  forming.chunkBytes = request.chunkBytes;
  forming.until = std::min(forming.until, clock().now() + patienceFor(request));
  return answer;
}

// A group is complete when all of its ranks are connected.
void Daemon::enter(const JoinRequest& request, Child child) {
  Forming whole;
  {
    std::lock_guard lock(mutex_);
    const auto entry = forming_.find(request.group);
    if (entry == forming_.end()) return;  // it was given up meanwhile
    entry->second.children.push_back(std::move(child));
    if (entry->second.children.size() < entry->second.ranks) return;
    whole = std::move(entry->second);
    forming_.erase(entry);
    groupCount_++;
  }
  complete(request.group, std::move(whole));
}

// The verdict goes out before data may move, on the errand of the member that came last: the members of other
// groups do not wait for it.
void Daemon::complete(uint64_t id, Forming forming) {
  GroupOptions options;
  options.id = id;
  options.ranks = forming.ranks;
  options.chunkBytes = forming.chunkBytes;
  options.window = options_.window;
  options.parting = options_.limits.patience;
  options.clock = &clock();
  auto group = std::make_unique<AggGroup>(options, std::move(forming.children));
  const Status ready = withoutThrowing([&] { return group->prepare(); });
  const coll::Verdict verdict{static_cast<bool>(ready), ready ? "" : ready.error().message()};
  Patience patience(clock(), Milliseconds(2000));
  for (Child& child : group->children()) {
    (void)child.link->say(verdict.encode(), patience);
    child.link.reset();
  }
  if (!ready) {
    WEFT_LOG(warn, "%s: a group of %u ranks is refused: %s", options_.name.c_str(), forming.ranks,
             verdict.reason.c_str());
    group.reset();
    groupBytes_ -= forming.bytes;
    groupCount_--;
    refused_++;
    return;
  }
  std::lock_guard lock(mutex_);
  formed_++;
  fresh_.push_back(std::move(group));
}

bool Daemon::passOver() {
  bool moved = false;
  for (const auto& group : groups_) {
    const Status fine = withoutThrowing([&]() -> Status {
      moved = group->progress() || moved;
      return {};
    });
    const MustNotFail telling;
    if (!fine) group->end(options_.name + " has no memory left");
  }
  return moved;
}

void Daemon::moveData() {
  int quiet = 0;  // passes in which nothing moved
  TimePoint watched = clock().now();
  while (takeFresh()) {
    quiet = passOver() ? 0 : quiet + 1;
    if (const TimePoint now = clock().now(); now - watched >= kTick) {
      watched = now;
      watchGroups();
      const std::lock_guard lock(mutex_);
      beginEnding();
    }
    answerReports();
    rest(quiet);
  }
}

// Spins while data moves, naps while the groups are quiet, and looks for new groups where there is none.
void Daemon::rest(int quiet) const {
  constexpr int kQuietPasses = 20000;
  constexpr Milliseconds kNap{1};
  if (groups_.empty()) return clock().sleep(kIdle);
  if (quiet > kQuietPasses) return clock().sleep(kNap);
  if (quiet > 0) clock().yield();
}

// Takes over the groups that were formed. False: the daemon stops.
bool Daemon::takeFresh() {
  const std::lock_guard lock(mutex_);
  groups_.splice(groups_.end(), fresh_);
  return !stopping_;
}

// A group that has ended leaves the data thread's round here; a report of its last state stays.
void Daemon::watchGroups() {
  for (auto group = groups_.begin(); group != groups_.end();) {
    (*group)->watch();
    const auto next = std::next(group);
    if ((*group)->hasEnded()) {
      GroupReport report = (*group)->report();
      const std::lock_guard lock(mutex_);
      endings_.push_back({std::move(*group), std::move(report)});
      groups_.erase(group);
    }
    group = next;
  }
}

// The lock is held. Where the system has no thread for a group now, the next tick tries again.
void Daemon::beginEnding() {
  for (Ending& ending : endings_)
    if (!ending.begun)
      ending.begun = closings_.start("weft-agg-close", [this, &ending] { closeEnded(ending); });
}

// An errand. A daemon that stops waits for no member.
void Daemon::closeEnded(Ending& ending) {
  const size_t bytes = ending.group->bytes();
  while (!stopping_ && !ending.group->over()) {
    ending.group->settle();
    clock().sleep(kTick);
  }
  ending.group->close();
  ending.group.reset();
  const std::lock_guard lock(mutex_);
  groupBytes_ -= bytes;
  groupCount_--;
  ended_++;
  endings_.remove_if([&](const Ending& one) { return &one == &ending; });
}

bool Daemon::drain() {
  draining_ = true;
  return groupCount_ == 0;
}

}  // namespace weft::agg
