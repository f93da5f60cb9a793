// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/cluster_rank.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "tools/netdriver/log_sink.h"

namespace weft::perf {

namespace {

using Clock = std::chrono::steady_clock;

// A path that works takes milliseconds; many at a time a little longer.
constexpr Milliseconds kReach{5000};
constexpr Milliseconds kReachEach{10};
constexpr Milliseconds kStall{5000};

template <class T>
void put(std::vector<std::byte>* to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to->insert(to->end(), bytes.begin(), bytes.end());
}

template <class T>
Result<std::vector<T>> itemsOf(std::span<const std::byte> bytes) {
  std::vector<T> items(bytes.size() / sizeof(T));
  if (items.size() * sizeof(T) != bytes.size())
    return Error(Code::remote, "check cluster", "a message of another version");
  if (!items.empty()) std::memcpy(items.data(), bytes.data(), bytes.size());
  return items;
}

// The plugin's last words are why a call failed.
std::string lastWarning() {
  const std::vector<std::string> warnings = netdriver::LogSink::instance().takeWarnings();
  return warnings.empty() ? std::string() : warnings.back();
}

}  // namespace

// Messages:

std::vector<std::byte> encode(const Question& question) {
  std::vector<std::byte> bytes;
  put(&bytes, question.ask);
  for (const Question::Peer& peer : question.peers) put(&bytes, peer);
  return bytes;
}

Result<Question> decodeQuestion(std::span<const std::byte> bytes) {
  Question question;
  if (bytes.size() < sizeof(question.ask)) return Error(Code::remote, "check cluster", "an empty message");
  std::memcpy(&question.ask, bytes.data(), sizeof(question.ask));
  TRY(question.peers, itemsOf<Question::Peer>(bytes.subspan(sizeof(question.ask))));
  return question;
}

std::vector<std::byte> encode(const std::vector<PeerAnswer>& answers) {
  std::vector<std::byte> bytes;
  for (const PeerAnswer& answer : answers) put(&bytes, answer);
  return bytes;
}

Result<std::vector<PeerAnswer>> decodeAnswers(std::span<const std::byte> bytes) {
  return itemsOf<PeerAnswer>(bytes);
}

size_t mostOfQuestion(int ranks) {
  return sizeof(Ask) + static_cast<size_t>(ranks) * sizeof(Question::Peer);
}

size_t mostOfAnswers(int ranks) {
  return static_cast<size_t>(ranks) * sizeof(PeerAnswer);
}

Words cutWords(const std::string& text) {
  Words words{};
  std::memcpy(words.data(), text.data(), std::min(text.size(), words.size() - 1));
  return words;
}

// The rank:

Result<ClusterRank> ClusterRank::open(const Options& options, int rank) {
  ClusterRank made;
  made.options_ = options;
  made.rank_ = rank;
  const std::string path = options.plugin.empty() ? netdriver::defaultPluginPath() : options.plugin;
  TRY(made.library_, netdriver::Library::open(path, options.abi));
  netdriver::Net& net = made.library_->net();
  TRY(netdriver::Context context, netdriver::Context::create(net, 1));
  made.context_.emplace(std::move(context));
  TRY(netdriver::check(net.devices(&made.devices_), netdriver::Call::devices, path));
  if (options.device >= made.devices_)
    return Error(Code::unavailable, "open plugin",
                 path + " offers " + std::to_string(made.devices_) + " devices, see --device");
  made.device_ = options.device;
  if (options.merge) {
    TRY(made.device_, netdriver::mergeDevices(net));
  }
  return made;
}

std::vector<PeerAnswer> ClusterRank::answer(const Question& question) {
  switch (question.ask) {
    case Ask::listen:
      return listen(question);
    case Ask::connect:
      return connect(question);
    case Ask::measure:
      return measure(question);
    case Ask::leave:
      break;
  }
  closeAll();
  return {};
}

// The connections of the round before are closed only now: with a peer that is cut off that takes a while,
// and no rank should wait so long with its answer.
std::vector<PeerAnswer> ClusterRank::listen(const Question& question) {
  closeAll();
  std::vector<PeerAnswer> answers;
  for (const Question::Peer& peer : question.peers) {
    PeerAnswer& answer = answers.emplace_back();
    Link& link = links_.emplace_back();
    link.rank = peer.rank;
    auto listener = netdriver::listen(*context_, device_);
    answer.well = listener ? 1 : 0;
    if (listener) {
      link.listener = listener.take();
      answer.handle = link.listener.handle;
    } else {
      link.failed = lastWarning();
      answer.why = cutWords(link.failed.empty() ? listener.error().message() : link.failed);
    }
  }
  return answers;
}

void ClusterRank::step(Link& link, netdriver::Handle& handle) {
  netdriver::Net& net = context_->net();
  Status well;
  if (!link.send)
    well = netdriver::check(net.connect(context_->raw(), device_, handle.data(), &link.send),
                            netdriver::Call::connect, "a peer");
  if (well && !link.recv)
    well =
        netdriver::check(net.accept(link.listener.comm.raw(), &link.recv), netdriver::Call::accept, "a peer");
  if (well) return;
  link.failed = lastWarning();
  if (link.failed.empty()) link.failed = well.error().message();
}

// All at the same time: those that cannot be reached cost one wait together.
std::vector<PeerAnswer> ClusterRank::connect(const Question& question) {
  std::vector<netdriver::Handle> handles;
  for (const Question::Peer& peer : question.peers) handles.push_back(peer.handle);
  const size_t count = std::min(handles.size(), links_.size());
  const auto open = [](const Link& link) { return link.failed.empty() && !(link.send && link.recv); };
  const auto deadline = Clock::now() + kReach + kReachEach * static_cast<int>(count);
  context_->net().setNetAttr(context_->raw(), static_cast<int>(count), 1);
  while (std::any_of(links_.begin(), links_.end(), open) && Clock::now() < deadline) {
    for (size_t i = 0; i < count; ++i)
      if (open(links_[i])) step(links_[i], handles[i]);
    std::this_thread::yield();
  }
  std::vector<PeerAnswer> answers(question.peers.size());
  for (size_t i = 0; i < count; ++i) {
    const Link& link = links_[i];
    answers[i].sends = link.send ? 1 : 0;
    answers[i].well = link.send && link.recv ? 1 : 0;
    if (answers[i].well == 0) answers[i].why = cutWords(link.failed);
  }
  return answers;
}

std::vector<PeerAnswer> ClusterRank::measure(const Question& question) {
  std::vector<PeerAnswer> answers;
  for (const Question::Peer& peer : question.peers) {
    const auto link =
        std::find_if(links_.begin(), links_.end(), [&](const Link& one) { return one.rank == peer.rank; });
    answers.push_back(link == links_.end() ? PeerAnswer() : measure(*link, peer.begins != 0));
  }
  return answers;
}

PeerAnswer ClusterRank::measure(Link& link, bool begins) {
  PeerAnswer answer;
  netdriver::Net& net = context_->net();
  const auto take = [&](netdriver::Side side, void** raw) {
    return netdriver::Comm(net, side, std::exchange(*raw, nullptr));
  };
  const auto run = [&]() -> Status {
    const Milliseconds stall = std::min(kStall, Milliseconds(int64_t{options_.stallSeconds} * 1000));
    PairProbe::Ends ends{take(netdriver::Side::send, &link.send), take(netdriver::Side::recv, &link.recv),
                         rank_, link.rank};
    if (!options_.fit.empty()) ends.largest = PairProbe::kCostMessage;
    TRY(PairProbe probe, PairProbe::create(std::move(ends), stall));
    TRY(answer.latency, probe.latency(begins));
    answer.small = 1;
    TRY(const double first, probe.bandwidth(begins, options_.clusterBytes));
    TRY(const double second, probe.bandwidth(!begins, options_.clusterBytes));
    answer.bandwidth = std::max(first, second);  // 0: what we sent
    if (options_.fit.empty()) return {};
    TRY(answer.costs, probe.costs(begins));
    return {};
  };
  const Status done = run();
  answer.well = done ? 1 : 0;
  if (done) return answer;
  const std::string warning = lastWarning();
  answer.why = cutWords(warning.empty() ? done.error().detail() : warning);
  return answer;
}

void ClusterRank::closeAll() {
  for (Link& link : links_) {
    if (link.send) (void)context_->net().closeSend(link.send);
    if (link.recv) (void)context_->net().closeRecv(link.recv);
  }
  links_.clear();
}

}  // namespace weft::perf
