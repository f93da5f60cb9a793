// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/queue_run.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/replay/pattern.h"
#include "tools/replay/rank_run.h"
#include "tools/trace/show/print.h"

namespace weft::replay {

namespace {

using trace::Kind;
namespace at = trace::at;

uint64_t nanoseconds(std::chrono::steady_clock::duration time) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
}

}  // namespace

QueueRun::QueueRun(const Queue& plan, RankState& rank)
    : plan_(&plan), rank_(&rank), memory_(rank.plan->memories) {
  wait_.rank = plan.rank;
  wait_.comm = plan.number;
  wait_.receives = plan.kind == QueueKind::recv;
  if (plan.peer != nullptr) wait_.peer = plan.peer->rank;
  if (isColl(plan.kind)) coll_ = std::make_unique<CollRun>(plan, rank);
}

Result<void*> QueueRun::add(std::span<std::byte> memory) {
  void* mhandle = nullptr;
  TRY(netdriver::check(rank_->net->regMr(comm_.raw(), memory.data(), memory.size(), &mhandle),
                       netdriver::Call::regMr, plan_->name()));
  return mhandle;
}

void QueueRun::remove(void* mhandle) {
  (void)rank_->net->deregMr(comm_.raw(), mhandle);
}

bool QueueRun::waitsFor(uint32_t thread) const {
  const size_t next = next_.load(std::memory_order_acquire);
  return next < plan_->ops.size() && plan_->ops[next].event->thread == thread;
}

Result<Step> QueueRun::step(Times* times) {
  const size_t next = next_.load(std::memory_order_relaxed);
  const Op& op = plan_->ops[next];
  const auto began = Clock::now();
  TRY(const Step step, perform(op, times));
  if (step == Step::later) return step;
  KindTimes& kind = times->kinds[static_cast<size_t>(op.event->kind)];
  ++kind.calls;
  // Of a post only the plugin's own call counts, not making the data; a test has no time in the trace.
  const bool posts = op.event->kind == Kind::isend || op.event->kind == Kind::irecv;
  if (!posts && op.event->kind != Kind::test) kind.inside.replayed += nanoseconds(Clock::now() - began);
  kind.inside.recorded += op.event->duration;
  next_.store(next + 1, std::memory_order_release);
  return step;
}

// A recv comm is there when its listener's queue has accepted it.
Result<Step> QueueRun::perform(const Op& op, Times* times) {
  const Kind kind = op.event->kind;
  if (coll_) {
    TRY(const Step step, coll_->perform(op, times));
    established_.store(coll_->established(), std::memory_order_release);
    return step;
  }
  if (plan_->kind == QueueKind::recv && !established()) return broken_ ? Step::done : Step::later;
  const bool ends = kind == Kind::closeSend || kind == Kind::closeRecv || kind == Kind::closeListen;
  if (ends) return close();
  if (kind == Kind::init) return init(op);
  if (kind == Kind::finalize) return finalize();
  if (broken_ || (op.event->result != 0 && plan_->kind != QueueKind::context)) {
    broken_ = true;
    if (kind == Kind::deregMr) memory_.release((*op.event)[at::kMemory]);
    return Step::done;
  }
  switch (kind) {
    case Kind::listen:
      return listen(op);
    case Kind::connect:
      return connect(op, times);
    case Kind::accept:
      return accept(op, times);
    case Kind::regMr:
    case Kind::regMrDmaBuf:
      TRY(memory_.registerOne(*this, (*op.event)[at::kMemory]));
      return Step::done;
    case Kind::deregMr:
      memory_.release((*op.event)[at::kMemory]);
      return Step::done;
    case Kind::isend:
    case Kind::irecv:
      return post(op, times);
    case Kind::iflush:
      return flush(op, times);
    default:
      return test(op, times);
  }
}

Error QueueRun::error(const std::string& detail) const {
  return {Code::remote, "replay", plan_->name() + ": " + detail};
}

Result<Step> QueueRun::failed(ncclResult_t result, const Op& op) {
  if (!mayGiveUp())
    return error(fmt::format("{} where it succeeded in the trace: {}", netdriver::resultName(result),
                             trace::describe(*op.event)));
  broken_ = true;
  return Step::done;
}

int QueueRun::device() const {
  return plan_->device % std::max(1, rank_->devices);
}

void* QueueRun::contextRaw() const {
  const auto found = rank_->contexts.find(plan_->context);
  const bool own = found != rank_->contexts.end() && found->second->context_ != nullptr;
  return own ? found->second->context_->raw() : rank_->context->raw();
}

Result<Step> QueueRun::init(const Op& op) {
  const auto trafficClass = static_cast<int>(static_cast<int64_t>((*op.event)[at::kTrafficClass]));
  TRY(netdriver::Context made,
      netdriver::Context::create(*rank_->net, (*op.event)[at::kCommId], trafficClass));
  context_ = std::make_unique<netdriver::Context>(std::move(made));
  established_.store(true, std::memory_order_release);
  return Step::done;
}

// Everything made in it comes to its end first.
Result<Step> QueueRun::finalize() {
  for (const auto& [plan, run] : rank_->byPlan)
    if (plan->context == plan_->number && plan != plan_ && !(run->atEnd() || run->broken_))
      return Step::later;
  for (const auto& [plan, run] : rank_->byPlan)
    if (plan->context == plan_->number && plan != plan_ && run->open_.load(std::memory_order_acquire))
      return Step::later;
  context_.reset();
  return Step::done;
}

Result<Step> QueueRun::listen(const Op& op) {
  const auto context = rank_->contexts.find(plan_->context);
  if (context != rank_->contexts.end() && !context->second->established()) return Step::later;
  void* raw = nullptr;
  const ncclResult_t result = rank_->net->listen(contextRaw(), device(), handle_.data(), &raw);
  if (result != ncclSuccess || raw == nullptr) return failed(result, op);
  comm_ = netdriver::Comm(*rank_->net, netdriver::Side::listen, raw);
  open_.store(true, std::memory_order_release);
  rank_->board->publish({plan_->rank, plan_->number}, handle_);
  return Step::done;
}

Result<Step> QueueRun::connect(const Op& op, Times* times) {
  const auto context = rank_->contexts.find(plan_->context);
  if (context != rank_->contexts.end() && !context->second->established()) return Step::later;
  if (!hasHandle_) {
    const auto found = rank_->board->find({plan_->listener->rank, plan_->listener->number});
    if (!found) return Step::later;
    handle_ = *found;
    hasHandle_ = true;
    since_ = Clock::now();
  }
  void* raw = nullptr;
  const ncclResult_t result = rank_->net->connect(contextRaw(), device(), handle_.data(), &raw);
  if (result != ncclSuccess) return failed(result, op);
  if (raw == nullptr) return Step::later;
  times->connecting.replayed += nanoseconds(Clock::now() - since_);
  times->connecting.recorded += (*op.event)[at::kConnectWaited] + op.event->duration;
  adopt(netdriver::Comm(*rank_->net, netdriver::Side::send, raw));
  return Step::done;
}

Result<Step> QueueRun::accept(const Op& op, Times* times) {
  const uint64_t number = (*op.event)[at::kAcceptComm];
  if (since_ == Clock::time_point()) since_ = Clock::now();
  void* raw = nullptr;
  const ncclResult_t result = rank_->net->accept(comm_.raw(), &raw);
  if (result != ncclSuccess) return failed(result, op);
  if (raw == nullptr) return Step::later;
  times->connecting.replayed += nanoseconds(Clock::now() - since_);
  times->connecting.recorded += (*op.event)[at::kAcceptWaited] + op.event->duration;
  since_ = {};
  netdriver::Comm comm(*rank_->net, netdriver::Side::recv, raw);
  for (const auto& [plan, run] : rank_->byPlan)
    if (plan->kind == QueueKind::recv && plan->number == number) run->adopt(std::move(comm));
  return Step::done;
}

void QueueRun::adopt(netdriver::Comm comm) {
  comm_ = std::move(comm);
  open_.store(true, std::memory_order_release);
  established_.store(true, std::memory_order_release);
}

// With requests unfinished this is an abort, as it was in the trace.
Result<Step> QueueRun::close() {
  memory_.releaseAll();
  live_.clear();
  const ncclResult_t result = comm_.close();
  open_.store(false, std::memory_order_release);
  if (result != ncclSuccess && !mayGiveUp())
    return error(std::string("closing ended with ") + netdriver::resultName(result));
  return Step::done;
}

Status QueueRun::prepare(const Op& op) {
  for (size_t i = 0; i < op.event->parts.size(); ++i) {
    TRY(const Place place, memory_.take(*this, op.event->parts[i]));
    if (op.event->kind == Kind::isend) fill(op.messages[i].seed, {place.data, place.size});
    prepared_.push_back(place);
  }
  return {};
}

ncclResult_t QueueRun::postPrepared(const Op& op, void** request) {
  if (op.event->kind == Kind::isend) {
    netdriver::SendArgs args;
    args.data = prepared_[0].data;
    args.size = prepared_[0].size;
    args.tag = static_cast<int>(op.event->parts[0].tag);
    args.mhandle = prepared_[0].mhandle;
    return rank_->net->isend(comm_.raw(), args, request);
  }
  netdriver::RecvArgs args;
  args.n = static_cast<int>(prepared_.size());
  for (size_t i = 0; i < prepared_.size(); ++i) {
    args.data[i] = prepared_[i].data;
    args.sizes[i] = prepared_[i].size;
    args.tags[i] = static_cast<int>(op.event->parts[i].tag);
    args.mhandles[i] = prepared_[i].mhandle;
  }
  if (op.event->kind == Kind::iflush) return rank_->net->iflush(comm_.raw(), args, request);
  const bool hint = ((*op.event)[at::kFlags] & trace::kOptionalCompletion) != 0;
  if (hint) *request = reinterpret_cast<void*>(NCCL_NET_OPTIONAL_RECV_COMPLETION);
  const ncclResult_t result = rank_->net->irecv(comm_.raw(), args, request);
  if (hint && *request == reinterpret_cast<void*>(NCCL_NET_OPTIONAL_RECV_COMPLETION)) *request = nullptr;
  return result;
}

Result<Step> QueueRun::post(const Op& op, Times* times) {
  if (op.event->parts.size() > netdriver::kMaxGroup)
    return error(fmt::format("a group of {} messages, and {} are the most that can be replayed",
                             op.event->parts.size(), netdriver::kMaxGroup));
  if (prepared_.empty()) TRY(prepare(op));
  const auto now = Clock::now();
  void* request = nullptr;
  const ncclResult_t result = postPrepared(op, &request);
  if (result != ncclSuccess) return failed(result, op);
  if (request == nullptr) {
    if (notNow_++ == 0) since_ = now;
    return Step::later;
  }
  times->kinds[static_cast<size_t>(op.event->kind)].inside.replayed += nanoseconds(Clock::now() - now);
  times->notNow.replayed += notNow_;
  times->notNow.recorded += (*op.event)[at::kNotNow];
  if (notNow_ > 0) times->notNowNanoseconds.replayed += nanoseconds(now - since_);
  times->notNowNanoseconds.recorded += (*op.event)[at::kWaited];
  notNow_ = 0;
  live_[(*op.event)[at::kRequest]] = {request, &op, std::move(prepared_), now};
  prepared_.clear();
  return Step::done;
}

// A flush that the trace had no request for may have one here: it is waited for.
Result<Step> QueueRun::flush(const Op& op, Times*) {
  if (op.event->parts.size() > netdriver::kMaxGroup)
    return error("a flush of more messages than can be replayed");
  if (flushing_ == nullptr) {
    for (const trace::Part& part : op.event->parts) {
      TRY(const Place place, memory_.take(*this, part));
      memory_.giveBack(place);
      prepared_.push_back(place);
    }
    const ncclResult_t result = postPrepared(op, &flushing_);
    prepared_.clear();
    if (result != ncclSuccess) return failed(result, op);
    if (flushing_ == nullptr) return Step::done;
  }
  int done = 0;
  const ncclResult_t result = rank_->net->test(flushing_, &done, nullptr);
  if (result == ncclSuccess && done == 0) return Step::later;
  flushing_ = nullptr;
  return result == ncclSuccess ? Result<Step>(Step::done) : failed(result, op);
}

Result<Step> QueueRun::test(const Op& op, Times* times) {
  const auto found = live_.find((*op.event)[at::kRequest]);
  if (found == live_.end()) return Step::done;  // of a flush, which was waited for
  Live& live = found->second;
  int sizes[netdriver::kMaxGroup] = {};
  int done = arrived_ ? 1 : 0;
  const ncclResult_t result = arrived_ ? ncclSuccess : rank_->net->test(live.raw, &done, sizes);
  if (result != ncclSuccess) return failed(result, op);
  if (done == 0) return Step::later;
  TRY(const Step step, finishTest(op, live, sizes, times));
  if (step == Step::done) live_.erase(found);
  return step;
}

// Where the job left completion to the data itself, the plugin may say done before the bytes are there.
Result<Step> QueueRun::finishTest(const Op& op, Live& live, std::span<const int> sizes, Times* times) {
  const bool receives = live.op->event->kind == Kind::irecv;
  const bool hint = receives && ((*live.op->event)[at::kFlags] & trace::kOptionalCompletion) != 0;
  for (size_t i = 0; receives && i < live.places.size(); ++i) {
    const uint64_t recorded = i < op.event->parts.size() ? op.event->parts[i].size : live.places[i].size;
    if (!hint && static_cast<uint64_t>(sizes[i]) != recorded)
      return error(fmt::format("message {} of tag {}: {} bytes came and the trace has {}",
                               live.op->messages[i].number, live.op->event->parts[i].tag, sizes[i],
                               recorded));
    bool arrived = true;
    TRY(checkMessage(live, i, recorded, &arrived));
    if (!arrived && hint) {
      arrived_ = true;
      return Step::later;
    }
    ++times->messages;
    times->bytes += recorded;
  }
  arrived_ = false;
  for (const Place& place : live.places) memory_.giveBack(place);
  Compared took{nanoseconds(Clock::now() - live.posted),
                op.event->time - std::min(op.event->time, live.op->event->time)};
  Compared& sum = receives ? times->receives : times->sends;
  sum.replayed += took.replayed;
  sum.recorded += took.recorded;
  ++wait_.requests;
  wait_.nanoseconds.replayed += took.replayed;
  wait_.nanoseconds.recorded += took.recorded;
  return Step::done;
}

Status QueueRun::checkMessage(const Live& live, size_t part, uint64_t told, bool* arrived) const {
  const auto wrong = firstWrong(live.op->messages[part].seed, {live.places[part].data, told});
  *arrived = !wrong;
  const bool hint = ((*live.op->event)[at::kFlags] & trace::kOptionalCompletion) != 0;
  if (!wrong || hint) return {};
  return error(fmt::format("message {} of tag {}, {} bytes: the byte at {} is wrong",
                           live.op->messages[part].number, live.op->event->parts[part].tag, told, *wrong));
}

std::string QueueRun::waiting() const {
  const size_t next = next_.load(std::memory_order_acquire);
  if (next >= plan_->ops.size()) return plan_->name() + ": nothing";
  const Op& op = plan_->ops[next];
  std::string text = fmt::format("{}: step {} of {}: {}", plan_->name(), next + 1, plan_->ops.size(),
                                 trace::describe(*op.event));
  if (op.event->kind != Kind::test) return text;
  const auto live = live_.find((*op.event)[at::kRequest]);
  if (live == live_.end()) return text;
  for (size_t i = 0; i < live->second.op->messages.size(); ++i)
    text += fmt::format("; message {} of tag {}, {} bytes", live->second.op->messages[i].number,
                        live->second.op->event->parts[i].tag, live->second.op->event->parts[i].size);
  return text;
}

void QueueRun::finish(Times* times) {
  if (broken_) ++times->brokenComms;
  times->addWait(wait_);
  memory_.releaseAll();
  if (coll_) coll_->finish();
  comm_.close();
}

}  // namespace weft::replay
