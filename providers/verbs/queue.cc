// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/queue.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>

#include "providers/verbs/endpoint.h"
#include "providers/verbs/words.h"
#include "src/base/log.h"

// The poll: mail of the helper threads, completions, and lanes that want progress.
namespace weft::verbs {

namespace {

constexpr uint32_t kLeastDepth = 64;
// With the fence marker 127 slots: drivers that round to a power of two have room for them. Cards take 128
// bytes a slot, so a queue pair takes some 16 KiB. That many works of 64 KiB keep a link of 400 Gb/s busy.
constexpr uint32_t kMostLaneWorks = 126;

}  // namespace

VerbsQueue::VerbsQueue(VerbsDevice& device, const QueueDepths& wanted)
    : device_(device), depths_(wanted), room_(0) {
  depths_.sends = std::max(depths_.sends, 1u);
  depths_.notifications = std::max(depths_.notifications, 1u);
}

Result<std::unique_ptr<Queue>> VerbsQueue::create(VerbsDevice& device, const QueueDepths& wanted) {
  auto queue = std::make_unique<VerbsQueue>(device, wanted);
  TRY(queue->start());
  return std::unique_ptr<Queue>(std::move(queue));
}

Status VerbsQueue::start() {
  objects_ = std::make_shared<QueueObjects>();
  objects_->library = device_.library();
  objects_->port = device_.port();
  objects_->pd = device_.pd();
  const int wished = settings().trafficClass >= 0 ? settings().trafficClass : depths_.trafficClass;
  objects_->trafficClass = std::clamp(wished, 0, 255);
  TRY(openReceiveQueue());
  TRY(openCompletionQueue());
  room_ = depths_.sends;
  device_.listen({mailbox_, objects_->cq.get(), objects_->srq.get()});
  return {};
}

VerbsQueue::~VerbsQueue() {
  device_.forget(mailbox_.get());
}

Status VerbsQueue::openReceiveQueue() {
  const auto most = static_cast<uint32_t>(std::max(device_.port().maxReceives, 1));
  const uint32_t limit =
      (most > 2 * Receives::kBatch ? most - 2 * Receives::kBatch : most) / perNotification();
  depths_.notifications = std::min(depths_.notifications, limit);
  // A batch more than may arrive, since consumed receives are posted again a batch at a time.
  const uint32_t count = depths_.notifications * perNotification() + Receives::kBatch;
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = std::min(count + Receives::kBatch, most);
  attributes.attr.max_sge = 1;
  ibv_srq* raw = device_.library()->createSrq(device_.pd(), &attributes);
  if (!raw) return verbsError("creating a shared receive queue", device_.info().name, errno);
  objects_->srq = Handle<ibv_srq>(raw, device_.library()->destroySrq);
  return receives_.fill(raw, count);
}

// Halves the depths until the card can make the queue.
Status VerbsQueue::openCompletionQueue() {
  for (;;) {
    const uint32_t entries = depths_.sends + depths_.notifications * perNotification() +
                             kOwnEntries * static_cast<uint32_t>(settings().queuePairs);
    const bool fits = entries <= static_cast<uint32_t>(device_.port().maxCompletions);
    ibv_cq* raw =
        fits ? device_.library()->createCq(device_.context(), static_cast<int>(entries), nullptr, nullptr, 0)
             : nullptr;
    if (raw) {
      objects_->cq = Handle<ibv_cq>(raw, device_.library()->destroyCq);
      return {};
    }
    if (fits || depths_.notifications <= kLeastDepth)
      return verbsError("creating a completion queue", device_.info().name, fits ? errno : EINVAL);
    depths_.notifications /= 2;
    depths_.sends = std::max(depths_.sends / 2, kLeastDepth);
  }
}

uint32_t VerbsQueue::laneDepth() const {
  const auto most = static_cast<uint32_t>(std::max(device_.port().maxWorks - 1, 1));
  return std::min({depths_.sends, kMostLaneWorks, most});
}

Result<std::unique_ptr<Endpoint>> VerbsQueue::openEndpoint() {
  return VerbsEndpoint::create(*this);
}

size_t VerbsQueue::poll(std::span<Completion> out) {
  events_.beginPoll();
  if (!mailbox_->empty()) [[unlikely]]
    readMail();
  size_t count = events_.empty() ? 0 : events_.take(out);
  count += readCompletions(out.subspan(count));
  if (!leaving_.empty() && count < out.size()) [[unlikely]]
    // There was room, so the completion queue was read to its end.
    give(leaving_.drained(device_.clock().now(), device_.dialer()));
  receives_.refill();
  if (!pending_.empty()) [[unlikely]]
    progressLanes();
  return count;
}

size_t VerbsQueue::readCompletions(std::span<Completion> out) {
  size_t count = 0;
  while (count < out.size()) {
    if (unfolding_) {
      if (unfolding_->unfold(&out[count])) {
        count++;
      } else {
        unfolding_ = nullptr;
      }
    } else if (nextEntry()) {
      count += handle(entries_[static_cast<size_t>(next_++)], &out[count]);
    } else {
      break;
    }
  }
  return count;
}

// True when there is an entry to handle. Entries are read kBatch at a time.
bool VerbsQueue::nextEntry() {
  if (next_ < filled_) return true;
  next_ = 0;
  filled_ = ibv_poll_cq(objects_->cq.get(), kBatch, entries_.data());
  if (filled_ >= 0) [[likely]]
    return filled_ > 0;
  filled_ = 0;
  failed(EIO, "the completion queue of " + device_.info().name + " cannot be read any more");
  return false;
}

// An entry of a send belongs to the queue pair that it names. Where that queue pair was destroyed and its
// number given to another, our own number in wr_id differs.
bool VerbsQueue::handle(const ibv_wc& entry, Completion* out) {
  if (entry.wr_id == Receives::kId) return arrived(entry, out);
  SendQueue* sender = senders_.find(entry.qp_num);
  if (sender && sender->finished(entry)) unfolding_ = sender;
  return false;
}

// A notification. An entry of a lane that is gone only gives its receive back.
bool VerbsQueue::arrived(const ibv_wc& entry, Completion* out) {
  receives_.consumed();
  SendQueue* sender = senders_.find(entry.qp_num);
  if (entry.status != IBV_WC_SUCCESS || !sender) return false;
  const auto length = sender->lengthOf(entry);
  if (!length) return false;
  *out = Completion{};
  out->kind = CompletionKind::notified;
  out->imm = ntohl(entry.imm_data);
  out->length = *length;
  out->source = &sender->lane();
  return true;
}

void VerbsQueue::readMail() {
  for (const QueueEvent& event : mailbox_->take()) open(event);
}

void VerbsQueue::open(const QueueEvent& event) {
  if (event.about == QueueEvent::About::queue) return failed(event.error, event.why);
  if (event.about == QueueEvent::About::last) return tookLast(event.queuePair);
  if (event.about == QueueEvent::About::port || event.about == QueueEvent::About::address)
    return passOn(event);
  SendQueue* found = nullptr;
  senders_.forEach([&](SendQueue& sender) {
    const bool meant = event.about == QueueEvent::About::connected ? sender.number() == event.sender
                                                                   : sender.pairNumber() == event.queuePair;
    if (meant) found = &sender;
  });
  if (!found) return;
  if (event.about == QueueEvent::About::lane) return found->lane().broke(event.error, event.why);
  found->lane().dialled(event.error, event.why);
}

// To every lane, by its first queue pair.
void VerbsQueue::passOn(const QueueEvent& event) {
  senders_.forEach([&](SendQueue& sender) {
    if (!sender.lane().isFirst(sender)) return;
    if (event.now)
      sender.lane().addressRead(*event.now);
    else
      sender.lane().portWent(event.why);
  });
}

void VerbsQueue::tookLast(uint32_t queuePair) {
  leaving_.tookLast(queuePair);
  senders_.forEach([&](SendQueue& sender) {
    if (sender.pairNumber() == queuePair) sender.pair()->noteLastTaken();
  });
}

// Something that all lanes need has failed. Entries that the card still reports are read nevertheless.
void VerbsQueue::failed(int error, const std::string& why) {
  senders_.forEach([&](SendQueue& sender) { sender.lane().broke(error, why); });
}

void VerbsQueue::progressLanes() {
  const TimePoint now = device_.clock().now();
  std::erase_if(pending_, [&](VerbsEndpoint* lane) { return !lane->progress(now); });
}

void VerbsQueue::progress(VerbsEndpoint* lane) {
  if (std::find(pending_.begin(), pending_.end(), lane) == pending_.end()) pending_.push_back(lane);
}

void VerbsQueue::forget(SendQueue* sender) {
  senders_.erase(sender);
  if (unfolding_ == sender) unfolding_ = nullptr;
}

void VerbsQueue::letGo(std::shared_ptr<QueuePair> pair, size_t requests) {
  leaving_.add(std::move(pair), requests, device_.clock().now());
}

void VerbsQueue::forget(VerbsEndpoint* lane) {
  std::erase(pending_, lane);
  events_.eraseIf([lane](const Completion& completion) { return completion.source == lane; });
}

void VerbsQueue::report(const Completion& completion, std::string why) {
  events_.report(completion, std::move(why));
}

void VerbsQueue::explainNow(const Completion& completion, std::string why) {
  events_.explainNow(completion, std::move(why));
}

std::string VerbsQueue::explain(const Completion& completion) const {
  if (const std::string* why = events_.wordsOf(completion)) return *why;
  return completion.ok ? "no error" : format("verbs error %d", completion.error);
}

}  // namespace weft::verbs
