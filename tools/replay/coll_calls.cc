// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/coll_calls.h"

#include <algorithm>
#include <utility>

#include "tools/replay/rank_run.h"

namespace weft::replay {

namespace {

using trace::Kind;
namespace at = trace::at;

}  // namespace

Status CollCalls::init(const Op& op) {
  TRY(context_, netdriver::CollContext::create(*rank_->offload, (*op.event)[at::kCommId]));
  return {};
}

// Tables before version 11 have none, and the one of a replay does: then each listener has its own.
Result<const netdriver::CollContext*> CollCalls::context() {
  const auto found = rank_->contexts.find(plan_->context);
  const bool own = found != rank_->contexts.end() && found->second->plan().kind == QueueKind::collContext;
  if (own) return static_cast<const CollCalls&>(found->second->table()).context_.get();
  if (!context_) {
    TRY(context_, netdriver::CollContext::create(*rank_->offload, 1));
  }
  return context_.get();
}

Result<Answer> CollCalls::listen() {
  TRY(const auto* context, context());
  TRY(const auto listening, netdriver::CollComm::listen(*context, device()));
  comm_ = listening.raw;
  rank_->board->publish({plan_->rank, plan_->number}, listening.handle);
  return Answer{ncclSuccess, true};
}

Result<Answer> CollCalls::connect(const Op& op, Times*) {
  const QueueRun* const listener = rank_->byPlan.at(plan_->listener);
  if (!listener->established()) return Answer{};
  std::vector<netdriver::Handle> handles = handlesOfMembers();
  if (handles.empty()) return Answer{};
  std::vector<void*> pointers;
  for (netdriver::Handle& handle : handles) pointers.push_back(handle.data());
  const ncclResult_t result = rank_->offload->connect(
      pointers.data(), static_cast<int>(pointers.size()), static_cast<int>((*op.event)[at::kCollRank]),
      static_cast<const CollCalls&>(listener->table()).comm_, &comm_);
  if (result != ncclSuccess || comm_ == nullptr)
    return Answer{result == ncclSuccess ? ncclInternalError : result, false};
  return Answer{ncclSuccess, true};
}

Result<Answer> CollCalls::accept(const Op&, Times*) {
  return Answer{ncclInvalidUsage, false};
}

ncclResult_t CollCalls::close() {
  void* const comm = std::exchange(comm_, nullptr);
  ncclResult_t result = ncclSuccess;
  if (comm != nullptr && plan_->kind == QueueKind::coll) result = rank_->offload->closeColl(comm);
  if (comm != nullptr && plan_->kind == QueueKind::collListen) result = rank_->offload->closeListen(comm);
  if (plan_->kind == QueueKind::collListen) context_.reset();
  return result;
}

Result<void*> CollCalls::add(std::span<std::byte> memory) {
  void* mhandle = nullptr;
  const ncclResult_t result =
      rank_->offload->regMr(comm_, memory.data(), memory.size(), NCCL_PTR_HOST, &mhandle);
  if (result == ncclSuccess) return mhandle;
  return error(std::string("regMr returned ") + netdriver::resultName(result));
}

void CollCalls::remove(void* mhandle) {
  rank_->offload->deregMr(comm_, mhandle);
}

// The first part of a gather or a scatter stands alone, and the trace has no size of it.
Status CollCalls::prepare(const Op& op, CommMemory* memory, Posted* posted) {
  const auto& parts = op.event->parts;
  const bool scatters = op.event->kind == Kind::ireducescatter;
  TRY(posted->data, CollData::of(op, static_cast<int>((*plan_->ops.front().event)[at::kCollRank]),
                                 static_cast<int>(plan_->members.size())));
  for (size_t i = 0; i < parts.size(); ++i) {
    trace::Part part = parts[i];
    if (i == 0 && op.event->kind == Kind::iallgather) part.size = posted->data->sendBytes();
    if (i == 0 && scatters) part.size = posted->data->receiveBytes();
    TRY(const Place place, memory->take(*this, part));
    posted->places.push_back(place);
  }
  const auto sent = posted->data->sent();
  size_t at = 0;
  const size_t last = scatters ? parts.size() : 1;
  for (size_t i = scatters ? 1 : 0; i < last; ++i) {
    std::copy_n(sent.begin() + static_cast<ptrdiff_t>(at), posted->places[i].size, posted->places[i].data);
    at += posted->places[i].size;
  }
  return {};
}

ncclResult_t CollCalls::post(const Posted& posted, void** request) {
  const trace::Event& event = *posted.op->event;
  const auto& places = posted.places;
  const auto type = static_cast<ncclDataType_t>(event[at::kElementType]);
  const auto reduction = static_cast<ncclRedOp_t>(event[at::kOp]);
  if (event.kind == Kind::iallreduce) {
    return rank_->offload->iallreduce(comm_, places[0].data, places[1].data, posted.data->elements(), type,
                                      reduction, places[0].mhandle, places[1].mhandle, request);
  }
  std::vector<ncclNetSGE_v12_t> pieces;
  for (size_t i = 1; i < places.size(); ++i)
    pieces.push_back({places[i].mhandle, places[i].data, places[i].size});
  const auto count = static_cast<int>(pieces.size());
  if (event.kind == Kind::iallgather)
    return rank_->offload->iallgather(comm_, places[0].data, count, pieces.data(), event[at::kGatherWindow],
                                      event[at::kGatherWindow + 1], event[at::kGatherWindow + 2],
                                      places[0].mhandle, request);
  return rank_->offload->ireducescatter(
      comm_, count, pieces.data(), places[0].data, event[at::kScatterWindow], event[at::kScatterWindow + 1],
      event[at::kScatterWindow + 2], type, reduction, places[0].mhandle, request);
}

ncclResult_t CollCalls::flush(const Posted& posted, void** request) {
  const Place& place = posted.places[0];
  return rank_->offload->iflush(comm_, place.data, static_cast<int>(place.size), place.mhandle, request);
}

ncclResult_t CollCalls::test(void* request, int* done, int* sizes) {
  return rank_->offload->test(request, done, sizes);
}

Result<bool> CollCalls::check(const Op&, const Posted& posted, std::span<const int>, Times* times) {
  std::vector<std::byte> received;
  const bool scatters = posted.op->event->kind == Kind::ireducescatter;
  const size_t last = scatters ? 1 : posted.places.size();
  for (size_t i = scatters ? 0 : 1; i < last; ++i)
    received.insert(received.end(), posted.places[i].data, posted.places[i].data + posted.places[i].size);
  if (const auto wrong = posted.data->wrong(received))
    return error("a collective operation's result: " + *wrong);
  ++times->messages;
  times->bytes += posted.data->receiveBytes();
  return true;
}

}  // namespace weft::replay
