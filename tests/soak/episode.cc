// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/soak/episode.h"

#include <algorithm>
#include <csignal>
#include <thread>

#include "tools/netdriver/log_sink.h"

namespace weft::soak {

using netdriver::Call;
using netdriver::Side;
using system::Deadline;

namespace {

using Clock = std::chrono::steady_clock;

// Far above the plugin's own limits, which scale with what is in flight: reaching one of these is a hang.
constexpr Milliseconds kConnectLimit{20'000};
constexpr Milliseconds kTransferLimit{45'000};

struct Offer {
  netdriver::Handle handle{};
  bool valid = false;
};

bool fails(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

// The newest ones: this process may have been warned of episodes before, which were disturbed.
std::string latestWarnings() {
  constexpr size_t kMost = 6;
  const auto all = netdriver::LogSink::instance().takeWarnings();
  std::string text;
  for (size_t i = all.size() > kMost ? all.size() - kMost : 0; i < all.size(); i++) text += "\n  " + all[i];
  return text.empty() ? " nothing" : text;
}

}  // namespace

bool Episode::play() {
  const bool agreed = connectAll();
  if (agreed && connected_ && !transfer()) return false;
  if (!agreed) return false;
  const Outcome here = outcome();
  closeAll();
  judge(here, end_.exchange(here));
  return true;
}

bool Episode::actsHere() const {
  const bool hub = end_.receives();
  return script_.incident != Incident::none && hub != mine(Incident::abortPeer);
}

// False: the other process is gone.
bool Episode::connectAll() {
  for (uint32_t link = 0; link < script_.links && connected_; ++link)
    if (!connectOne(link)) return false;
  return true;
}

bool Episode::connectOne(uint32_t link) {
  Offer mine;
  netdriver::Listener listener;
  if (auto made = netdriver::listen(end_.context(), end_.device())) {
    listener = made.take();
    mine = {listener.handle, true};
  }
  Offer theirs = end_.exchange(mine);
  const bool kill = this->mine(Incident::killConnecting) && link + 1 == script_.links;
  if (kill && end_.peer() != nullptr) end_.peer()->signal(SIGKILL);
  netdriver::Ends ends;
  bool made = mine.valid && theirs.valid && pollEnds(&ends, &listener, &theirs.handle);
  if (kill) return false;  // at the other side: about to be killed, there is nobody to agree with
  made = end_.exchange(static_cast<uint8_t>(made)) != 0 && made;
  if (made) addFlows(link, std::move(ends));
  connected_ = made;
  return true;
}

// Until both ends are there or have failed. Whoever fails closes its listener, so that the other side hears
// of it; a connect that nobody calls any more would be kept until its deadline.
bool Episode::pollEnds(netdriver::Ends* ends, netdriver::Listener* listener, netdriver::Handle* theirs) {
  netdriver::Net& net = end_.net();
  void* send = nullptr;
  void* recv = nullptr;
  bool refused = false;
  for (const auto limit = Clock::now() + kConnectLimit; Clock::now() < limit; std::this_thread::yield()) {
    if (send == nullptr && !refused)
      refused = fails(net.connect(end_.context().raw(), 0, theirs->data(), &send));
    const bool listens = recv == nullptr && static_cast<bool>(listener->comm);
    if (listens && (refused || fails(net.accept(listener->comm.raw(), &recv)))) listener->comm.close();
    if ((send != nullptr || refused) && (recv != nullptr || !listener->comm)) break;
  }
  ends->send = netdriver::Comm(net, Side::send, send);
  ends->recv = netdriver::Comm(net, Side::recv, recv);
  return send != nullptr && recv != nullptr;
}

// The traffic of a direction is drawn from the script, the link and who sends.
void Episode::addFlows(uint32_t link, netdriver::Ends ends) {
  const auto seedOf = [&](int sender) { return script_.seed + link * 2 + static_cast<uint64_t>(sender); };
  const int most = end_.properties().maxRecvs;
  auto receiver =
      std::make_unique<RecvFlow>(run_, std::move(ends.recv), drawTraffic(seedOf(1 - end_.side()), most));
  receivers_.push_back(receiver.get());
  flows_.push_back(std::move(receiver));
  flows_.push_back(std::make_unique<SendFlow>(run_, std::move(ends.send),
                                              drawTraffic(seedOf(end_.side()), most), script_.seed ^ link));
}

// False: the other process was killed on purpose, and every comm here has noticed.
bool Episode::transfer() {
  const std::string what = "every comm of an episode done or failed, seed " + std::to_string(script_.seed);
  Deadline deadline(run_, what, kTransferLimit);
  for (; !allOver() && !aborted_; deadline.check()) {
    for (auto& flow : flows_) flow->step();
    if (!acted_ && actsHere() && groupsReceived() >= script_.after) act();
    wake();
  }
  // An incident that found nothing left to disturb.
  if (!acted_ && actsHere()) act();
  stoppedUntil_ = {};
  wake();
  if (killed_) closeAll();
  return !killed_;
}

void Episode::act() {
  acted_ = true;
  if (mine(Incident::abortHub) || mine(Incident::abortPeer)) {
    aborted_ = true;
    run_.count("aborts");
  } else if (mine(Incident::killTransfer)) {
    killed_ = true;
    end_.peer()->signal(SIGKILL);
    run_.count("kills");
  } else if (mine(Incident::stop)) {
    end_.peer()->signal(SIGSTOP);
    stoppedUntil_ = Clock::now() + Milliseconds(200 + script_.seed % 1000);
    run_.count("stops");
  }
}

void Episode::wake() {
  if (!mine(Incident::stop) || !acted_ || end_.peer() == nullptr || Clock::now() < stoppedUntil_) return;
  end_.peer()->signal(SIGCONT);
}

void Episode::closeAll() {
  for (auto& flow : flows_) flow->close();
  flows_.clear();
  receivers_.clear();
}

// Whoever neither breaks its fabric nor is disturbed sees no error at all.
void Episode::judge(const Outcome& here, const Outcome& there) {
  const bool aborting = mine(Incident::abortHub) || mine(Incident::abortPeer);
  const bool clean = here.connected && there.connected && here.failed + there.failed == 0;
  if (!script_.harsh && !aborting)
    run_.expect(clean, "a connection failed that nobody disturbed, seed " + std::to_string(script_.seed) +
                           "; connected " + (here.connected ? "here" : "not here") +
                           (there.connected ? " and there" : " and not there") + ", failed " +
                           std::to_string(here.failed) + " here, " + std::to_string(there.failed) +
                           " there; the plugin's last warnings:" + (clean ? "" : latestWarnings()));
  run_.count("episodes");
  run_.count(clean ? "episodes without an error" : "episodes with an error");
}

Outcome Episode::outcome() const {
  Outcome outcome;
  outcome.connected = connected_;
  for (const auto& flow : flows_) {
    outcome.failed += flow->failed() ? 1 : 0;
    outcome.done += flow->done() ? 1 : 0;
  }
  return outcome;
}

size_t Episode::groupsReceived() const {
  size_t groups = 0;
  for (const RecvFlow* receiver : receivers_) groups += receiver->groupsDone();
  return groups;
}

bool Episode::allOver() const {
  return std::all_of(flows_.begin(), flows_.end(), [](const auto& flow) { return flow->over(); });
}

}  // namespace weft::soak
