// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/coll_run.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "tools/replay/rank_run.h"
#include "tools/trace/show/print.h"

namespace weft::replay {

namespace {

using trace::Kind;
namespace at = trace::at;

}  // namespace

CollRun::CollRun(const Queue& plan, RankState& rank)
    : plan_(&plan), rank_(&rank), memory_(rank.plan->memories) {}

Error CollRun::error(const std::string& detail) const {
  return {Code::remote, "replay", plan_->name() + ": " + detail};
}

Result<Step> CollRun::failed(ncclResult_t result, const Op& op) {
  if (!plan_->aborted)
    return error(fmt::format("{} where it succeeded in the trace: {}", netdriver::resultName(result),
                             trace::describe(*op.event)));
  broken_ = true;
  return Step::done;
}

Result<Step> CollRun::perform(const Op& op, Times* times) {
  if (rank_->offload == nullptr)
    return error("the trace has collective offload, and the plugin exports no ncclCollNetPlugin_v12");
  const Kind kind = op.event->kind;
  if (kind == Kind::closeColl || kind == Kind::closeListen) return close();
  if (kind == Kind::collFinalize) return finalize();
  if (kind == Kind::deregMr) memory_.release((*op.event)[at::kMemory]);
  if (broken_ || op.event->result != 0 || kind == Kind::deregMr) return Step::done;
  switch (kind) {
    case Kind::collInit:
      return init(op);
    case Kind::collListen:
      return listen(op);
    case Kind::collConnect:
      return connect(op);
    case Kind::regMr:
    case Kind::regMrDmaBuf:
      TRY(memory_.registerOne(*this, (*op.event)[at::kMemory]));
      return Step::done;
    case Kind::iflush:
      return flush(op);
    case Kind::test:
      return test(op, times);
    default:
      return post(op);
  }
}

Result<Step> CollRun::init(const Op& op) {
  TRY(context_, netdriver::CollContext::create(*rank_->offload, (*op.event)[at::kCommId]));
  established_.store(true, std::memory_order_release);
  return Step::done;
}

// Tables before version 11 have none; those of a replay do.
Result<const netdriver::CollContext*> CollRun::context() {
  const auto found = rank_->contexts.find(plan_->context);
  if (found != rank_->contexts.end() && found->second->coll()) return found->second->coll()->context_.get();
  if (!context_) {
    TRY(context_, netdriver::CollContext::create(*rank_->offload, 1));
  }
  return context_.get();
}

Result<Step> CollRun::listen(const Op&) {
  const auto found = rank_->contexts.find(plan_->context);
  if (found != rank_->contexts.end() && !found->second->established()) return Step::later;
  TRY(const auto* context, context());
  TRY(const auto listening,
      netdriver::CollComm::listen(*context, plan_->device % std::max(1, rank_->devices)));
  comm_ = listening.raw;
  handle_ = listening.handle;
  established_.store(true, std::memory_order_release);
  rank_->board->publish({plan_->rank, plan_->number}, handle_);
  return Step::done;
}

Result<Step> CollRun::connect(const Op& op) {
  const QueueRun* const listener = rank_->byPlan.at(plan_->listener);
  if (!listener->established()) return Step::later;
  std::vector<netdriver::Handle> handles;
  for (const Queue* member : plan_->members) {
    const auto handle = rank_->board->find({member->rank, member->listener->number});
    if (!handle) return Step::later;
    handles.push_back(*handle);
  }
  std::vector<void*> pointers;
  for (netdriver::Handle& handle : handles) pointers.push_back(handle.data());
  const ncclResult_t result =
      rank_->offload->connect(pointers.data(), static_cast<int>(pointers.size()),
                              static_cast<int>((*op.event)[at::kCollRank]), listener->coll()->comm_, &comm_);
  if (result != ncclSuccess || comm_ == nullptr) return failed(result, op);
  established_.store(true, std::memory_order_release);
  return Step::done;
}

// A listener is there until what connects by it is connected.
Result<Step> CollRun::close() {
  for (const auto& [plan, run] : rank_->byPlan)
    if (plan->listener == plan_ && run->coll() && !run->established() && !run->coll()->broken_)
      return Step::later;
  finish();
  return Step::done;
}

// Everything made in it comes to its end first.
Result<Step> CollRun::finalize() {
  for (const auto& [plan, run] : rank_->byPlan)
    if (plan->context == plan_->number && plan != plan_ && run->coll() &&
        (!run->atEnd() || run->coll()->open()))
      return Step::later;
  context_.reset();
  return Step::done;
}

Result<void*> CollRun::add(std::span<std::byte> memory) {
  void* mhandle = nullptr;
  const ncclResult_t result =
      rank_->offload->regMr(comm_, memory.data(), memory.size(), NCCL_PTR_HOST, &mhandle);
  if (result == ncclSuccess) return mhandle;
  return error(std::string("regMr returned ") + netdriver::resultName(result));
}

void CollRun::remove(void* mhandle) {
  rank_->offload->deregMr(comm_, mhandle);
}

Status CollRun::prepare(const Op& op) {
  const auto& parts = op.event->parts;
  TRY(auto data, CollData::of(op, static_cast<int>((*plan_->ops.front().event)[at::kCollRank]),
                              static_cast<int>(plan_->members.size())));
  prepared_ = std::make_unique<Live>(Live{nullptr,
                                          nullptr,
                                          {},
                                          data,
                                          {},
                                          op.event->kind == Kind::iallgather,
                                          op.event->kind == Kind::ireducescatter});
  for (size_t i = 0; i < parts.size(); ++i) {
    trace::Part part = parts[i];
    if (i == 0 && prepared_->gathers) part.size = data.sendBytes();
    if (i == 0 && prepared_->scatters) part.size = data.receiveBytes();
    TRY(const Place place, memory_.take(*this, part));
    prepared_->places.push_back(place);
  }
  const auto sent = data.sent();
  size_t at = 0;
  const size_t last = prepared_->scatters ? parts.size() : 1;
  for (size_t i = prepared_->scatters ? 1 : 0; i < last; ++i) {
    std::copy_n(sent.begin() + static_cast<ptrdiff_t>(at), prepared_->places[i].size,
                prepared_->places[i].data);
    at += prepared_->places[i].size;
  }
  return {};
}

ncclResult_t CollRun::postPrepared(const Op& op, void** request) {
  const trace::Event& event = *op.event;
  const auto& places = prepared_->places;
  const auto type = static_cast<ncclDataType_t>(event[at::kElementType]);
  const auto reduction = static_cast<ncclRedOp_t>(event[at::kOp]);
  if (event.kind == Kind::iallreduce) {
    return rank_->offload->iallreduce(comm_, places[0].data, places[1].data, prepared_->data.elements(), type,
                                      reduction, places[0].mhandle, places[1].mhandle, request);
  }
  std::vector<ncclNetSGE_v12_t> pieces;
  for (size_t i = 1; i < places.size(); ++i)
    pieces.push_back({places[i].mhandle, places[i].data, places[i].size});
  const auto count = static_cast<int>(pieces.size());
  if (prepared_->gathers)
    return rank_->offload->iallgather(comm_, places[0].data, count, pieces.data(), event[at::kGatherWindow],
                                      event[at::kGatherWindow + 1], event[at::kGatherWindow + 2],
                                      places[0].mhandle, request);
  return rank_->offload->ireducescatter(
      comm_, count, pieces.data(), places[0].data, event[at::kScatterWindow], event[at::kScatterWindow + 1],
      event[at::kScatterWindow + 2], type, reduction, places[0].mhandle, request);
}

Result<Step> CollRun::post(const Op& op) {
  if (!prepared_) TRY(prepare(op));
  void* request = nullptr;
  const ncclResult_t result = postPrepared(op, &request);
  if (result != ncclSuccess) return failed(result, op);
  if (request == nullptr) return Step::later;
  prepared_->raw = request;
  prepared_->event = op.event;
  prepared_->posted = Clock::now();
  live_[(*op.event)[at::kRequest]] = std::move(*prepared_);
  prepared_.reset();
  return Step::done;
}

Result<Step> CollRun::flush(const Op& op) {
  if (flushing_ == nullptr) {
    TRY(const Place place, memory_.take(*this, op.event->parts[0]));
    memory_.giveBack(place);
    const ncclResult_t result =
        rank_->offload->iflush(comm_, place.data, static_cast<int>(place.size), place.mhandle, &flushing_);
    if (result != ncclSuccess) return failed(result, op);
    if (flushing_ == nullptr) return Step::done;
  }
  int done = 0, size = 0;
  const ncclResult_t result = rank_->offload->test(flushing_, &done, &size);
  if (result == ncclSuccess && done == 0) return Step::later;
  flushing_ = nullptr;
  return result == ncclSuccess ? Result<Step>(Step::done) : failed(result, op);
}

Result<Step> CollRun::test(const Op& op, Times* times) {
  const auto found = live_.find((*op.event)[at::kRequest]);
  if (found == live_.end()) return Step::done;  // of a flush, which was waited for
  Live& live = found->second;
  int done = 0, size = 0;
  const ncclResult_t result = rank_->offload->test(live.raw, &done, &size);
  if (result != ncclSuccess) return failed(result, op);
  if (done == 0) return Step::later;
  TRY(check(live));
  ++times->messages;
  times->bytes += live.data.receiveBytes();
  times->collectives.replayed +=
      static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - live.posted).count());
  times->collectives.recorded += op.event->time - std::min(op.event->time, live.event->time);
  for (const Place& place : live.places) memory_.giveBack(place);
  live_.erase(found);
  return Step::done;
}

Status CollRun::check(const Live& live) const {
  std::vector<std::byte> received;
  const size_t first = live.scatters ? 0 : 1;
  const size_t last = live.scatters ? 1 : live.places.size();
  for (size_t i = first; i < last; ++i)
    received.insert(received.end(), live.places[i].data, live.places[i].data + live.places[i].size);
  const auto wrong = live.data.wrong(received);
  return wrong ? Status(error("a collective operation's result: " + *wrong)) : Status();
}

void CollRun::finish() {
  if (rank_->offload == nullptr) return;
  memory_.releaseAll();
  live_.clear();
  if (comm_ != nullptr && plan_->kind == QueueKind::coll) rank_->offload->closeColl(comm_);
  if (comm_ != nullptr && plan_->kind == QueueKind::collListen) rank_->offload->closeListen(comm_);
  comm_ = nullptr;
  if (plan_->kind == QueueKind::collListen) context_.reset();
}

}  // namespace weft::replay
