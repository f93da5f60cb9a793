// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/queue_run.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/replay/coll_calls.h"
#include "tools/replay/net_calls.h"
#include "tools/replay/rank_run.h"
#include "tools/replay/rma_calls.h"
#include "tools/trace/show/print.h"

namespace weft::replay {

namespace {

using trace::Kind;
namespace at = trace::at;

bool isContext(QueueKind kind) {
  return kind == QueueKind::context || kind == QueueKind::collContext || kind == QueueKind::rmaContext;
}

bool isPost(Kind kind) {
  return kind == Kind::isend || kind == Kind::irecv || kind == Kind::iallreduce || kind == Kind::iallgather ||
         kind == Kind::ireducescatter || kind == Kind::iput || kind == Kind::iputSignal || kind == Kind::iget;
}

// Of one-sided operations alone.
bool isService(const Queue& queue, Kind kind) {
  return kind == Kind::createContext || kind == Kind::destroyContext || kind == Kind::regMrSym ||
         kind == Kind::iflushRma || (kind == Kind::deregMr && queue.kind == QueueKind::rma);
}

std::unique_ptr<Table> tableOf(const Queue& plan, RankState& rank) {
  if (isColl(plan.kind)) return std::make_unique<CollCalls>(plan, rank);
  if (isRma(plan.kind)) return std::make_unique<RmaCalls>(plan, rank);
  return std::make_unique<NetCalls>(plan, rank);
}

}  // namespace

QueueRun::QueueRun(const Queue& plan, RankState& rank)
    : plan_(&plan), rank_(&rank), table_(tableOf(plan, rank)), memory_(rank.plan->memories) {
  wait_.rank = plan.rank;
  wait_.comm = plan.number;
  wait_.receives = plan.kind == QueueKind::recv;
  if (plan.peer != nullptr) wait_.peer = plan.peer->rank;
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
  if (!isPost(op.event->kind) && op.event->kind != Kind::test)
    kind.inside.replayed += nanoseconds(Clock::now() - began);
  kind.inside.recorded += op.event->duration;
  next_.store(next + 1, std::memory_order_release);
  return step;
}

// A recv comm is there when its listener's queue has accepted it.
Result<Step> QueueRun::perform(const Op& op, Times* times) {
  const Kind kind = op.event->kind;
  if (isColl(plan_->kind) && rank_->offload == nullptr)
    return error("the trace has collective offload, and the plugin exports no ncclCollNetPlugin_v12");
  if (isRma(plan_->kind) && rank_->oneSided == nullptr)
    return error("the trace has one-sided operations, and the plugin exports no ncclRmaPlugin_v13 to v16");
  if (plan_->kind == QueueKind::recv && !established()) return broken_ ? Step::done : Step::later;
  if (kind == Kind::closeSend || kind == Kind::closeRecv || kind == Kind::closeListen ||
      kind == Kind::closeColl)
    return close();
  if (kind == Kind::finalize || kind == Kind::collFinalize || kind == Kind::rmaFinalize) return finalize();
  if (op.event->result != 0 && !isContext(plan_->kind)) broken_ = true;
  if (isService(*plan_, kind))
    return broken_ ? Result<Step>(Step::done) : static_cast<RmaCalls&>(*table_).service(op, times);
  if (kind == Kind::deregMr) memory_.release((*op.event)[at::kMemory]);
  if (broken_ || kind == Kind::deregMr) return Step::done;
  return performOpen(op, times);
}

Result<Step> QueueRun::performOpen(const Op& op, Times* times) {
  switch (op.event->kind) {
    case Kind::init:
    case Kind::collInit:
    case Kind::rmaInit:
      TRY(table_->init(op));
      established_.store(true, std::memory_order_release);
      return Step::done;
    case Kind::listen:
    case Kind::collListen:
    case Kind::rmaListen:
    case Kind::connect:
    case Kind::collConnect:
    case Kind::rmaConnect:
    case Kind::accept:
      return make(op, times);
    case Kind::regMr:
    case Kind::regMrDmaBuf:
      TRY(memory_.registerOne(*table_, (*op.event)[at::kMemory]));
      return Step::done;
    case Kind::iflush:
      return flush(op);
    case Kind::test:
      return test(op, times);
    default:
      return post(op, times);
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

void QueueRun::setEstablished() {
  open_.store(true, std::memory_order_release);
  established_.store(true, std::memory_order_release);
}

// Everything made in a context comes to its end first.
Result<Step> QueueRun::finalize() {
  for (const auto& [plan, run] : rank_->byPlan) {
    if (plan->context != plan_->number || plan == plan_) continue;
    if (!run->atEnd() && !run->broken_) return Step::later;
    if (run->open_.load(std::memory_order_acquire)) return Step::later;
  }
  table_->finalize();
  return Step::done;
}

// A comm that an accept makes is another queue's.
Result<Step> QueueRun::make(const Op& op, Times* times) {
  const auto context = rank_->contexts.find(plan_->context);
  if (context != rank_->contexts.end() && !context->second->established()) return Step::later;
  const Kind kind = op.event->kind;
  const bool listens = kind == Kind::listen || kind == Kind::collListen || kind == Kind::rmaListen;
  TRY(const Answer answer, listens                ? table_->listen()
                           : kind == Kind::accept ? table_->accept(op, times)
                                                  : table_->connect(op, times));
  if (answer.result != ncclSuccess) return failed(answer.result, op);
  if (!answer.made) return Step::later;
  if (kind != Kind::accept) setEstablished();
  return Step::done;
}

// With requests unfinished this is an abort, as it was in the trace. A listener for groups is there until
// what connects by it is connected.
Result<Step> QueueRun::close() {
  if (plan_->kind == QueueKind::collListen || plan_->kind == QueueKind::rmaListen)
    for (const auto& [plan, run] : rank_->byPlan)
      if (plan->listener == plan_ && !run->established() && !run->broken_) return Step::later;
  memory_.releaseAll();
  live_.clear();
  const ncclResult_t result = table_->close();
  open_.store(false, std::memory_order_release);
  if (result != ncclSuccess && !mayGiveUp())
    return error(std::string("closing ended with ") + netdriver::resultName(result));
  return Step::done;
}

Result<Step> QueueRun::post(const Op& op, Times* times) {
  if (!prepared_) {
    auto posted = std::make_unique<Posted>();
    posted->op = &op;
    TRY(table_->prepare(op, &memory_, posted.get()));
    prepared_ = std::move(posted);
  }
  const auto now = Clock::now();
  void* request = nullptr;
  const ncclResult_t result = table_->post(*prepared_, &request);
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
  prepared_->raw = request;
  prepared_->at = now;
  live_[(*op.event)[at::kRequest]] = std::move(*prepared_);
  prepared_.reset();
  return Step::done;
}

// A flush that the trace had no request for may have one here: it is waited for.
Result<Step> QueueRun::flush(const Op& op) {
  if (op.event->parts.size() > netdriver::kMaxGroup)
    return error("a flush of more messages than can be replayed");
  if (flushing_ == nullptr) {
    Posted flush;
    flush.op = &op;
    for (const trace::Part& part : op.event->parts) {
      TRY(const Place place, memory_.take(*table_, part));
      memory_.giveBack(place);
      flush.places.push_back(place);
    }
    const ncclResult_t result = table_->flush(flush, &flushing_);
    if (result != ncclSuccess) return failed(result, op);
    if (flushing_ == nullptr) return Step::done;
  }
  int done = 0;
  int sizes[netdriver::kMaxGroup] = {};
  const ncclResult_t result = table_->test(flushing_, &done, sizes);
  if (result == ncclSuccess && done == 0) return Step::later;
  flushing_ = nullptr;
  return result == ncclSuccess ? Result<Step>(Step::done) : failed(result, op);
}

Result<Step> QueueRun::test(const Op& op, Times* times) {
  const auto found = live_.find((*op.event)[at::kRequest]);
  if (found == live_.end()) return Step::done;  // of a flush, which was waited for
  const Posted& posted = found->second;
  int sizes[netdriver::kMaxGroup] = {};
  int done = arrived_ ? 1 : 0;
  const ncclResult_t result = arrived_ ? ncclSuccess : table_->test(posted.raw, &done, sizes);
  if (result != ncclSuccess) return failed(result, op);
  if (done == 0) return Step::later;
  TRY(arrived_, table_->check(op, posted, sizes, times));
  arrived_ = !arrived_;  // done, and to be looked at once more
  if (arrived_) return Step::later;
  account(op, posted, times);
  for (const Place& place : posted.places) memory_.giveBack(place);
  live_.erase(found);
  return Step::done;
}

void QueueRun::account(const Op& op, const Posted& posted, Times* times) {
  const Compared took{nanoseconds(Clock::now() - posted.at),
                      op.event->time - std::min(op.event->time, posted.op->event->time)};
  Compared& sum = table_->sumOf(posted, times);
  sum.replayed += took.replayed;
  sum.recorded += took.recorded;
  if (isColl(plan_->kind) || isRma(plan_->kind)) return;  // has no one peer
  ++wait_.requests;
  wait_.nanoseconds.replayed += took.replayed;
  wait_.nanoseconds.recorded += took.recorded;
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
  const Op& posted = *live->second.op;
  for (size_t i = 0; i < posted.messages.size() && i < posted.event->parts.size(); ++i)
    text += fmt::format("; message {} of tag {}, {} bytes", posted.messages[i].number,
                        posted.event->parts[i].tag, posted.event->parts[i].size);
  return text;
}

void QueueRun::finish(Times* times) {
  if (broken_) ++times->brokenComms;
  times->addWait(wait_);
  memory_.releaseAll();
  live_.clear();
  (void)table_->close();
}

}  // namespace weft::replay
