// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/agg/daemon.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/random.h"
#include "src/control/handle.h"

namespace weft::agg {

using coll::JoinAnswer;
using coll::JoinRequest;
using coll::Patience;

namespace {

constexpr auto kTick = std::chrono::milliseconds(20);

Error failed(const std::string& why, int errnum = 0) {
  return Error(Code::system, "starting weft-aggd", why, errnum);
}

bool isLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

// Without a secret the port would serve everybody who reaches it, with this host's memory and processors.
Status checkReach(const std::string& secret, const std::string& listen, const sockaddr* address) {
  if (!secret.empty() || isLoopback(address)) return {};
  return Error(
      Code::config, "starting weft-aggd",
      "without a secret it serves this host alone, and other hosts reach " + listen +
          "; give a secret with --secret or WEFT_AGGD_SECRET (itself, or @FILE whose first line it is), "
          "or --listen 127.0.0.1:PORT");
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::start(DaemonOptions options) {
  auto daemon = std::make_unique<Daemon>(std::move(options));
  TRY(daemon->secret_, coll::readSecret(daemon->options_.secret));
  daemon->key_ = coll::keyOf(daemon->secret_);
  if (daemon->options_.listen.empty())
    daemon->options_.listen = daemon->secret_.empty() ? "127.0.0.1:0" : "0.0.0.0:0";
  TRY(daemon->listen());
  Daemon* raw = daemon.get();
  TRY(daemon->moving_, startThread("weft-agg-data", [raw] { raw->moveData(); }));
  TRY(daemon->accepting_, startThread("weft-agg-join", [raw] { raw->accept(); }));
  return daemon;
}

// What is left of groups is closed by errands, so that it takes as long as the slowest member and not as long
// as all of them.
Daemon::~Daemon() {
  stopping_ = true;
  news_.notify_all();
  if (accepting_.joinable()) accepting_.join();
  talks_.finish();
  if (moving_.joinable()) moving_.join();
  for (auto& [id, forming] : forming_) giveUp(std::move(forming), "it is being shut down");
  {
    std::lock_guard lock(groupsMutex_);
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
  news_.notify_all();
  if (moving_.joinable()) moving_.join();
  std::lock_guard lock(groupsMutex_);
  groups_.clear();
}

Status Daemon::listen() {
  const size_t colon = options_.listen.rfind(':');
  if (colon == std::string::npos) return failed("\"" + options_.listen + "\" is not ADDRESS:PORT");
  std::string host = options_.listen.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int wrong = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), options_.listen.c_str() + colon + 1,
                                  &hints, &found);
  if (wrong != 0) return failed(options_.listen + ": " + ::gai_strerror(wrong));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  TRY(checkReach(secret_, options_.listen, found->ai_addr));
  listener_ = Fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool bound = listener_ && ::bind(listener_.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                     ::listen(listener_.get(), 1024) == 0;
  if (!bound) return failed("it cannot listen on " + options_.listen, errno);
  control::SocketAddress own;
  own.length = sizeof own.storage;
  ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.length);
  port_ = own.port();
  if (options_.name.empty()) options_.name = format("%s:%u", hostName().c_str(), port_);
  return {};
}

void Daemon::accept() {
  while (!stopping_) {
    talks_.reap();
    closings_.reap();
    dropForming(options_.context->net().clock().now());
    pollfd one{listener_.get(), POLLIN, 0};
    const bool full = talks_.count() >= options_.limits.joining;
    if (full || ::poll(&one, 1, 50) <= 0) {
      if (full) std::this_thread::sleep_for(kTick);
      continue;
    }
    Fd link(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!link) continue;
    const int on = 1;
    ::setsockopt(link.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(link.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    auto shared = std::make_shared<Fd>(std::move(link));
    (void)talks_.start("weft-agg-talk", [this, shared] { serve(std::move(*shared)); });
  }
}

// Groups that are not complete in time, or of which a member left again.
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

// With the lock held. Empty: it may go on waiting for the others.
std::string Daemon::faultOf(const Forming& forming, TimePoint now) const {
  uint32_t here = 0;
  for (const Child& child : forming.children) {
    std::byte one;
    here += child.weight;
    if (::recv(child.link.get(), &one, sizeof one, MSG_PEEK | MSG_DONTWAIT) == 0)
      return child.name + " left again";
  }
  if (now <= forming.until) return {};
  return format("only %u of %u ranks joined %s in time; ranks of other daemons need a common --parent", here,
                forming.ranks, options_.name.c_str());
}

// Telling members and closing their connections may wait for them. Without a thread they hear by the closed
// connection alone.
void Daemon::giveUp(Forming forming, const std::string& why) {
  auto shared = std::make_shared<Forming>(std::move(forming));
  (void)closings_.start("weft-agg-refuse", [this, shared, why] {
    Patience patience(options_.context->net().clock(), Milliseconds(200));
    for (const Child& child : shared->children)
      (void)coll::writeFrame(child.link, coll::Verdict{false, why, 0}.encode(), patience);
    shared->children.clear();
  });
}

void Daemon::serve(Fd link) {
  const Status talked = talk(link);
  if (!talked) WEFT_LOG(info, "%s: %s", options_.name.c_str(), talked.error().message().c_str());
}

Status Daemon::talk(Fd& link) {
  const Clock& clock = options_.context->net().clock();
  Patience shortly(clock, Milliseconds(2000));
  coll::Greeting greeting;
  fillRandom(greeting.nonce);
  TRY(coll::writeFrame(link, greeting.encode(), shortly));
  TRY(const Bytes said, coll::readFrame(link, shortly));
  if (const auto format = coll::decodeStatusRequest(said, key_, greeting.nonce))
    return answerStatus(link, static_cast<Format>(*format), shortly);
  auto request = coll::decodeJoinRequest(said, key_, greeting.nonce);
  if (!request) {
    refused_++;
    const JoinAnswer no{false, request.error().detail(), 0, {}};
    TRY(coll::writeFrame(link, no.encode(key_, {}), shortly));
    return request.takeError();
  }
  TRY(JoinAnswer answer, admit(*request));
  if (!answer.accepted) {
    TRY(coll::writeFrame(link, answer.encode(key_, request->nonce), shortly));
    return Error(Code::resources, "joining", request->name + " is refused: " + answer.reason);
  }
  Patience patience(clock, options_.limits.patience);
  TRY(auto listener, options_.context->net().listen(options_.context, options_.device, answer.handle));
  TRY(coll::writeFrame(link, answer.encode(key_, request->nonce), patience));
  Child child;
  TRY(child.pipe,
      coll::openPipe(options_.context, options_.device, *listener, request->handle, request->name, patience));
  child.link = std::move(link);
  child.order = request->order;
  child.weight = request->weight;
  child.daemon = request->daemon;
  child.name = request->daemon ? "the aggregation daemon " + request->name : request->name;
  enter(*request, std::move(child));
  return {};
}

Status Daemon::answerStatus(const Fd& link, Format format, Patience& patience) {
  const std::string text = status(format);
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return coll::writeFrame(link, Bytes(bytes.begin(), bytes.end()), patience);
}

// With the lock held. Empty: it may come in.
std::string Daemon::refusal(const JoinRequest& request) {
  if (draining_) return "it is being shut down";
  const auto known = forming_.find(request.group);
  const size_t more = known == forming_.end() ? 1 : 0;
  if (groupCount_ + forming_.size() + more > options_.limits.groups)
    return format("it has %zu groups, its quota (--max-groups)", options_.limits.groups);
  const size_t children = known == forming_.end() ? 1 : known->second.admitted + 1;
  if (children > options_.limits.children)
    return format("the group has more than %zu children here (--fan-in)", options_.limits.children);
  const size_t expected = std::max<size_t>(request.local, children);
  if (groupBytes_ + AggGroup::memoryBytes(expected, request.chunkBytes, options_.window) >
      options_.limits.bytes)
    return format("its quota of memory, %zu bytes, does not have room for the group (--max-bytes)",
                  options_.limits.bytes);
  if (known == forming_.end()) return {};
  const Forming& forming = known->second;
  if (forming.ranks != request.ranks || forming.chunkBytes != request.chunkBytes)
    return format("%s says %u ranks and chunks of %u, others of its group %u and %u", request.name.c_str(),
                  request.ranks, request.chunkBytes, forming.ranks, forming.chunkBytes);
  for (const Child& child : forming.children)
    if (child.order == request.order) return request.name + " has joined already";
  return {};
}

Result<JoinAnswer> Daemon::admit(const JoinRequest& request) {
  std::lock_guard lock(mutex_);
  JoinAnswer answer;
  answer.reason = refusal(request);
  answer.accepted = answer.reason.empty();
  answer.window = static_cast<uint32_t>(options_.window);
  if (!answer.accepted) {
    refused_++;
    return answer;
  }
  Forming& forming = forming_[request.group];
  forming.admitted++;
  forming.ranks = request.ranks;
  forming.chunkBytes = request.chunkBytes;
  if (!request.daemon) forming.local = request.local;
  if (forming.until == TimePoint())
    forming.until = options_.context->net().clock().now() + options_.limits.patience;
  return answer;
}

// Complete when all ranks of the group are below us, or all that join us themselves and the rest is the
// parent's.
void Daemon::enter(const JoinRequest& request, Child child) {
  Forming whole;
  {
    std::lock_guard lock(mutex_);
    const auto entry = forming_.find(request.group);
    if (entry == forming_.end()) return;  // given up meanwhile
    entry->second.children.push_back(std::move(child));
    uint32_t all = 0, own = 0;
    for (const Child& one : entry->second.children) {
      all += one.weight;
      if (!one.daemon) own += 1;
    }
    const bool here = all == entry->second.ranks;
    const bool ours = !options_.parent.empty() && own > 0 && own == entry->second.local && own == all;
    if (!here && !ours) return;
    whole = std::move(entry->second);
    forming_.erase(entry);
    groupCount_++;
  }
  complete(request.group, std::move(whole));
}

Result<std::unique_ptr<AggGroup>> Daemon::makeGroup(uint64_t id, Forming* forming) {
  GroupOptions group;
  group.id = id;
  group.ranks = forming->ranks;
  group.chunkBytes = forming->chunkBytes;
  group.window = options_.window;
  uint32_t weight = 0, order = forming->ranks;
  for (const Child& child : forming->children) {
    weight += child.weight;
    order = std::min(order, child.order);
  }
  if (weight < forming->ranks) {
    coll::JoinOptions join;
    join.context = options_.context;
    join.device = options_.device;
    join.daemon = options_.parent;
    join.secret = options_.secret;
    join.timeout = options_.limits.patience;
    join.request.group = id;
    join.request.ranks = forming->ranks;
    join.request.order = order;
    join.request.weight = weight;
    join.request.daemon = true;
    join.request.chunkBytes = forming->chunkBytes;
    join.request.name = options_.name;
    TRY(group.parent, coll::joinDaemon(std::move(join)));
  }
  return AggGroup::create(std::move(group), std::move(forming->children));
}

void Daemon::complete(uint64_t id, Forming forming) {
  auto group = makeGroup(id, &forming);
  coll::Verdict verdict{static_cast<bool>(group), group ? "" : group.error().message(), 0};
  Patience patience(options_.context->net().clock(), Milliseconds(2000));
  const auto tell = [&](const Child& child) {
    (void)coll::writeFrame(child.link, verdict.encode(), patience);
  };
  if (!group) {
    for (const Child& child : forming.children) tell(child);
    WEFT_LOG(warn, "%s: a group of %u ranks is refused: %s", options_.name.c_str(), forming.ranks,
             verdict.reason.c_str());
    groupCount_--;
    refused_++;
    return;
  }
  for (const Child& child : (*group)->children()) tell(child);
  groupBytes_ += (*group)->bytes();
  std::lock_guard lock(mutex_);
  formed_++;
  fresh_.push_back(group.take());
  news_.notify_all();
}

bool Daemon::passOver() {
  bool moved = false;
  for (const auto& group : groups_) moved = group->progress() || moved;
  return moved;
}

// Spins while data moves, naps while groups are quiet, sleeps without groups.
void Daemon::moveData() {
  constexpr int kQuietPasses = 20000;
  int quiet = 0;
  auto watched = std::chrono::steady_clock::now();
  while (!stopping_) {
    {
      std::unique_lock lock(mutex_);
      if (fresh_.empty() && groupCount_ == 0) news_.wait_for(lock, std::chrono::seconds(1));
      if (fresh_.empty() && quiet > kQuietPasses) news_.wait_for(lock, std::chrono::milliseconds(1));
      std::lock_guard groups(groupsMutex_);
      groups_.splice(groups_.end(), fresh_);
    }
    std::lock_guard lock(groupsMutex_);
    quiet = passOver() ? 0 : quiet + 1;
    const auto now = std::chrono::steady_clock::now();
    if (now - watched < kTick) continue;
    watched = now;
    watchGroups();
    beginEnding();
  }
}

void Daemon::watchGroups() {
  for (auto group = groups_.begin(); group != groups_.end();) {
    (*group)->watch();
    const auto next = std::next(group);
    if ((*group)->hasEnded()) {
      GroupReport report = (*group)->report();
      endings_.push_back({std::move(*group), std::move(report)});
      groups_.erase(group);
    }
    group = next;
  }
}

// A group for which the system gives no thread now is tried again at the next tick.
void Daemon::beginEnding() {
  for (Ending& ending : endings_)
    if (!ending.begun)
      ending.begun = closings_.start("weft-agg-close", [this, &ending] { closeEnded(ending); });
}

void Daemon::closeEnded(Ending& ending) {
  const size_t bytes = ending.group->bytes();
  while (!stopping_ && !ending.group->over()) {
    ending.group->settle();
    options_.context->net().clock().sleep(kTick);
  }
  ending.group.reset();
  std::lock_guard lock(groupsMutex_);
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
