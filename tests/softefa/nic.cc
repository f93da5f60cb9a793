// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/nic.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <initializer_list>
#include <random>
#include <signal.h>
#include <utility>

namespace softefa {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kPolledLately = microseconds(500);
constexpr auto kRest = milliseconds(2);  // each end of it costs an application that polls some 10 us
constexpr auto kExpiryPeriod = microseconds(200);
constexpr auto kControlPeriod = milliseconds(10);
constexpr auto kLongestSleep = milliseconds(200);
constexpr unsigned kPacketsAtOnce = 64;
constexpr uint64_t kBytesAtOnce = 32768;  // some 5 us: hardware keeps nobody waiting while more comes in

std::string contentOf(const std::string& path) {
  std::string text;
  if (std::FILE* file = std::fopen(path.c_str(), "re")) {
    char part[512];
    for (size_t got = 0; (got = std::fread(part, 1, sizeof part, file)) > 0;) text.append(part, got);
    std::fclose(file);
  }
  return text;
}

}  // namespace

std::unique_ptr<Nic> Nic::open(const Settings& settings, const Identity& identity, unsigned number) {
  const std::string fabric = Engine::fabric(settings);
  auto inbox = fabric.empty() ? nullptr : Inbox::own(Links(fabric).folderOf(identity.gid));
  if (inbox) return std::make_unique<Nic>(settings, identity, number, std::move(inbox));
  std::fprintf(stderr, "softefa: %s cannot be opened: it has %u openings, or %s cannot be written\n",
               identity.name.c_str(), kInboxes, settings.directory.c_str());
  return nullptr;
}

Nic::Nic(const Settings& settings, const Identity& identity, unsigned number, std::shared_ptr<Inbox> inbox)
    : engine_(settings, identity, number),
      requester_(engine_),
      responder_(engine_),
      inbox_(std::move(inbox)) {
  std::random_device entropy;
  engine_.opening = uint64_t{entropy()} << 32 | entropy();
  std::string wrong;
  (void)apply(settings.faults, wrong);  // what is not understood made no device
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the application's
  thread_ = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Nic::~Nic() {
  stopping_ = true;
  inbox_->ring();
  thread_.join();
  inbox_->close();
  if (!engine_.settings.statistics) return;
  const Counters& seen = engine_.counters;
  std::string text;
  for (const auto& [what, counter] :
       std::initializer_list<std::pair<const char*, const std::atomic<uint64_t>&>>{
           {"sent", seen.packetsSent},
           {"received", seen.packetsReceived},
           {"bytes received", seen.bytesReceived},
           {"held", seen.packetsHeld},
           {"lost", seen.packetsLost},
           {"not ready", seen.notReady},
           {"out of order", seen.outOfOrder},
           {"flushed", seen.workFlushed}})
    text += (text.empty() ? "" : ", ") + std::string(what) + " " + std::to_string(counter);
  std::fprintf(stderr, "softefa: %s: %s\n", engine_.identity.name.c_str(), text.c_str());
}

int Nic::plannedFailure(const char* call) {
  const std::lock_guard lock(mutex_);
  return engine_.faults.dead() ? EIO : engine_.faults.plannedFailure(call);
}

bool Nic::apply(const std::string& faults, std::string& wrong) {
  const std::lock_guard lock(mutex_);
  if (!engine_.faults.apply(faults, wrong)) return false;
  applyDeath();
  inbox_->ring();
  return true;
}

bool Nic::dead() {
  const std::lock_guard lock(mutex_);
  return engine_.faults.dead();
}

// A NIC that died ends all its work, hears nothing and is not heard of again.
void Nic::applyDeath() {
  inbox_->setSilent(engine_.faults.dead());
  if (!engine_.faults.dead()) return;
  for (const auto& qp : engine_.queuePairs) {
    if (qp && qp->state != IBV_QPS_RESET) flush(*qp);
  }
}

QueuePair* Nic::createQueuePair(const QueuePair& wanted) {
  const std::lock_guard lock(mutex_);
  auto& all = engine_.queuePairs;
  auto unused = std::find(all.begin(), all.end(), nullptr);
  if (unused == all.end()) {
    if (all.size() == kQueuePairs) return nullptr;
    unused = all.insert(all.end(), nullptr);
  }
  *unused = std::make_unique<QueuePair>(wanted);
  (*unused)->qpn = inbox_->number() * kQueuePairs + static_cast<uint32_t>(unused - all.begin());
  return unused->get();
}

void Nic::destroyQueuePair(QueuePair* qp) {
  const std::lock_guard lock(mutex_);
  requester_.forget(*qp);
  responder_.forget(*qp);
  qp->life->destroyed = true;
  engine_.queuePairs[qp->qpn % kQueuePairs].reset();
}

void Nic::setState(QueuePair& qp, ibv_qp_state state) {
  const std::lock_guard lock(mutex_);
  if (state == IBV_QPS_ERR) {
    flush(qp);
  } else {
    qp.state = state;
  }
}

void Nic::flush(QueuePair& qp) {
  qp.state = IBV_QPS_ERR;
  requester_.flush(qp);
  for (const ReceiveWork& work : std::exchange(qp.receives, {})) {
    Completion completion;
    completion.wrId = work.wrId;
    completion.status = Status::flushed;
    completion.ofSend = false;
    completion.opcode = IBV_WC_RECV;
    completion.qpn = qp.qpn;
    completion.life = qp.life;
    qp.receiveCq->push(std::move(completion));
  }
}

int Nic::post(QueuePair& qp, const std::vector<WorkRequest>& work) {
  const std::lock_guard lock(mutex_);
  if (const int failure = engine_.faults.plannedFailure("post_send")) return failure;
  if (qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_ERR) {
    engine_.violated(kStrictState,
                     "qp " + std::to_string(qp.qpn) + ": work was posted before it was ready to send");
    return EINVAL;
  }
  if (qp.life->sends + work.size() > qp.maxSends) return ENOMEM;
  qp.life->sends += static_cast<uint32_t>(work.size());
  for (const WorkRequest& one : work) requester_.post(qp, one);
  if (engine_.faults.diesNow()) applyDeath();
  progress(Clock::now());
  inbox_->wake();  // the thread watches over what is outstanding
  return 0;
}

int Nic::postReceive(QueuePair& qp, const ReceiveWork& work) {
  const std::lock_guard lock(mutex_);
  if (const int failure = engine_.faults.plannedFailure("post_recv")) return failure;
  if (qp.state == IBV_QPS_RESET) {
    engine_.violated(kStrictState,
                     "qp " + std::to_string(qp.qpn) + ": a receive was posted before it was set up");
    return EINVAL;
  }
  if (qp.life->receives >= qp.maxReceives) return ENOMEM;
  ++qp.life->receives;
  qp.receives.push_back(work);
  if (qp.state == IBV_QPS_ERR) flush(qp);
  return 0;
}

void Nic::poll() {
  const auto now = Clock::now();
  lastPoll_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) progress(now);
}

bool Nic::progress(Clock::time_point now) {
  readControl(now);
  bool worked = drain(now);
  worked = releaseHeld(now) || worked;
  worked = responder_.pump() || worked;
  worked = requester_.pump(now) || worked;
  if (now - lastExpiry_ >= kExpiryPeriod) {
    lastExpiry_ = now;
    requester_.expire(now);
    responder_.forgetOld(now);
  }
  return worked;
}

bool Nic::drain(Clock::time_point now) {
  unsigned taken = 0;
  uint64_t bytes = 0;
  const InboxSlot* slot = nullptr;
  while (taken < kPacketsAtOnce && bytes < kBytesAtOnce && (slot = inbox_->front())) {
    bytes += slot->header.length;
    ++engine_.counters.packetsReceived;
    engine_.counters.bytesReceived += slot->header.length;
    arrive(slot->header, slot->payload, now);
    inbox_->pop();
    ++taken;
  }
  return taken > 0;
}

void Nic::arrive(const PacketHeader& header, const std::byte* payload, Clock::time_point now) {
  Faults& faults = engine_.faults;
  if (faults.dead()) return;
  if (faults.muted(header.from)) {
    parked_.push_back({header, {payload, payload + header.length}});
    return;
  }
  if (!faults.holdsPackets() && held_.empty()) {
    deliver(header, payload, now);
    return;
  }
  bool lost = false;
  const auto release = faults.release(header, now, lost);
  if (lost) ++engine_.counters.packetsLost;
  if (!release) {
    ++engine_.counters.datagramsDropped;
  } else if (*release <= now) {
    deliver(header, payload, now);
  } else {
    hold(header, payload, *release);
  }
}

void Nic::hold(const PacketHeader& header, const std::byte* payload, Clock::time_point release) {
  ++engine_.counters.packetsHeld;
  held_.push({release, heldOrder_++, {header, {payload, payload + header.length}}});
}

bool Nic::releaseHeld(Clock::time_point now) {
  bool any = false;
  if (std::any_of(parked_.begin(), parked_.end(),
                  [this](const Packet& packet) { return !engine_.faults.muted(packet.header.from); })) {
    for (const Packet& packet : std::exchange(parked_, {})) arrive(packet.header, packet.payload.data(), now);
    any = true;
  }
  while (!held_.empty() && held_.top().release <= now) {
    const Packet packet = held_.top().packet;
    held_.pop();
    deliver(packet.header, packet.payload.data(), now);
    any = true;
  }
  return any;
}

void Nic::deliver(const PacketHeader& header, const std::byte* payload, Clock::time_point now) {
  if (engine_.faults.dead()) return;
  if (header.kind == PacketKind::answer) {
    requester_.onAnswer(header, now);
  } else if (header.kind == PacketKind::readResponse) {
    requester_.onReadData(header, payload);
  } else {
    responder_.onPacket(header, payload, now);
  }
}

void Nic::readControl(Clock::time_point now) {
  if (engine_.settings.control.empty() || now - lastControl_ < kControlPeriod) return;
  lastControl_ = now;
  std::string text = contentOf(engine_.settings.control);
  if (text == controlText_) return;
  controlText_ = std::move(text);
  std::string wrong;
  if (!engine_.faults.apply("none " + controlText_, wrong)) {
    std::fprintf(stderr, "softefa: fault '%s' in %s is not understood\n", wrong.c_str(),
                 engine_.settings.control.c_str());
  }
  applyDeath();
}

Clock::time_point Nic::nextWork(Clock::time_point now) {
  auto when = now + kLongestSleep;
  if (!held_.empty()) when = std::min(when, held_.top().release);
  if (requester_.eager() || responder_.eager()) when = std::min(when, now + microseconds(50));
  if (!requester_.idle()) when = std::min(when, now + milliseconds(1));
  if (!engine_.settings.control.empty()) when = std::min<Clock::time_point>(when, now + kControlPeriod);
  return when;
}

// While the application polls it does the work; this thread, at work beside it, would take its processor, or
// the lock that it needs to post.
void Nic::run() {
  while (!stopping_) {
    if (polledLately()) {
      std::this_thread::sleep_for(kRest);
    } else {
      workOrWait();
    }
  }
}

bool Nic::polledLately() const {
  const Clock::time_point polled{Clock::duration(lastPoll_.load(std::memory_order_relaxed))};
  return Clock::now() - polled < kPolledLately;
}

void Nic::workOrWait() {
  const uint32_t bell = inbox_->bell();
  Clock::duration patience;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (progress(now)) return;
    patience = nextWork(now) - now;
  }
  inbox_->sleep(bell, std::chrono::duration_cast<microseconds>(patience));
}

}  // namespace softefa
