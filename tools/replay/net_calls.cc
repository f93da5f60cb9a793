// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/net_calls.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/replay/pattern.h"
#include "tools/replay/rank_run.h"

namespace weft::replay {

namespace {

using trace::Kind;
namespace at = trace::at;

// NCCL leaves completion to the data itself where it asked for that with the receive.
bool mayBeEarly(const Op& op) {
  return op.event->kind == Kind::irecv && ((*op.event)[at::kFlags] & trace::kOptionalCompletion) != 0;
}

netdriver::RecvArgs argumentsOf(const Posted& posted) {
  netdriver::RecvArgs args;
  args.n = static_cast<int>(posted.places.size());
  for (size_t i = 0; i < posted.places.size(); ++i) {
    args.data[i] = posted.places[i].data;
    args.sizes[i] = posted.places[i].size;
    args.tags[i] = static_cast<int>(posted.op->event->parts[i].tag);
    args.mhandles[i] = posted.places[i].mhandle;
  }
  return args;
}

}  // namespace

Result<void*> NetCalls::add(std::span<std::byte> memory) {
  void* mhandle = nullptr;
  TRY(netdriver::check(rank_->net->regMr(comm_.raw(), memory.data(), memory.size(), &mhandle),
                       netdriver::Call::regMr, plan_->name()));
  return mhandle;
}

void NetCalls::remove(void* mhandle) {
  (void)rank_->net->deregMr(comm_.raw(), mhandle);
}

// A rank whose table knows no contexts has one for all.
void* NetCalls::contextRaw() const {
  const auto found = rank_->contexts.find(plan_->context);
  const bool own = found != rank_->contexts.end() && found->second->plan().kind == QueueKind::context;
  if (!own) return rank_->context->raw();
  const auto& calls = static_cast<const NetCalls&>(found->second->table());
  return calls.context_ ? calls.context_->raw() : rank_->context->raw();
}

Status NetCalls::init(const Op& op) {
  const auto trafficClass = static_cast<int>(static_cast<int64_t>((*op.event)[at::kTrafficClass]));
  TRY(netdriver::Context made,
      netdriver::Context::create(*rank_->net, (*op.event)[at::kCommId], trafficClass));
  context_ = std::make_unique<netdriver::Context>(std::move(made));
  return {};
}

Result<Answer> NetCalls::listen() {
  netdriver::Handle handle{};
  void* raw = nullptr;
  const ncclResult_t result = rank_->net->listen(contextRaw(), device(), handle.data(), &raw);
  if (result != ncclSuccess || raw == nullptr)
    return Answer{result == ncclSuccess ? ncclInternalError : result, false};
  comm_ = netdriver::Comm(*rank_->net, netdriver::Side::listen, raw);
  rank_->board->publish({plan_->rank, plan_->number}, handle);
  return Answer{ncclSuccess, true};
}

Result<Answer> NetCalls::connect(const Op& op, Times* times) {
  if (!hasHandle_) {
    const auto found = rank_->board->find({plan_->listener->rank, plan_->listener->number});
    if (!found) return Answer{};
    handle_ = *found;
    hasHandle_ = true;
    since_ = Clock::now();
  }
  void* raw = nullptr;
  const ncclResult_t result = rank_->net->connect(contextRaw(), device(), handle_.data(), &raw);
  if (result != ncclSuccess || raw == nullptr) return Answer{result, false};
  times->connecting.replayed += nanoseconds(Clock::now() - since_);
  times->connecting.recorded += (*op.event)[at::kConnectWaited] + op.event->duration;
  comm_ = netdriver::Comm(*rank_->net, netdriver::Side::send, raw);
  return Answer{ncclSuccess, true};
}

Result<Answer> NetCalls::accept(const Op& op, Times* times) {
  const uint64_t number = (*op.event)[at::kAcceptComm];
  if (since_ == Clock::time_point()) since_ = Clock::now();
  void* raw = nullptr;
  const ncclResult_t result = rank_->net->accept(comm_.raw(), &raw);
  if (result != ncclSuccess || raw == nullptr) return Answer{result, false};
  times->connecting.replayed += nanoseconds(Clock::now() - since_);
  times->connecting.recorded += (*op.event)[at::kAcceptWaited] + op.event->duration;
  since_ = {};
  netdriver::Comm comm(*rank_->net, netdriver::Side::recv, raw);
  for (const auto& [plan, run] : rank_->byPlan) {
    if (plan->kind != QueueKind::recv || plan->number != number) continue;
    static_cast<NetCalls&>(run->table()).adopt(std::move(comm));
    run->setEstablished();
    break;
  }
  return Answer{ncclSuccess, true};
}

Status NetCalls::prepare(const Op& op, CommMemory* memory, Posted* posted) {
  if (op.event->parts.size() > netdriver::kMaxGroup)
    return error(fmt::format("a group of {} messages, and {} are the most that can be replayed",
                             op.event->parts.size(), netdriver::kMaxGroup));
  for (size_t i = 0; i < op.event->parts.size(); ++i) {
    TRY(const Place place, memory->take(*this, op.event->parts[i]));
    if (op.event->kind == Kind::isend) fill(op.messages[i].seed, {place.data, place.size});
    posted->places.push_back(place);
  }
  return {};
}

ncclResult_t NetCalls::post(const Posted& posted, void** request) {
  if (posted.op->event->kind == Kind::isend) {
    netdriver::SendArgs args;
    args.data = posted.places[0].data;
    args.size = posted.places[0].size;
    args.tag = static_cast<int>(posted.op->event->parts[0].tag);
    args.mhandle = posted.places[0].mhandle;
    return rank_->net->isend(comm_.raw(), args, request);
  }
  void* const hint = reinterpret_cast<void*>(NCCL_NET_OPTIONAL_RECV_COMPLETION);
  if (mayBeEarly(*posted.op)) *request = hint;
  const ncclResult_t result = rank_->net->irecv(comm_.raw(), argumentsOf(posted), request);
  if (mayBeEarly(*posted.op) && *request == hint) *request = nullptr;
  return result;
}

ncclResult_t NetCalls::flush(const Posted& posted, void** request) {
  return rank_->net->iflush(comm_.raw(), argumentsOf(posted), request);
}

ncclResult_t NetCalls::test(void* request, int* done, int* sizes) {
  return rank_->net->test(request, done, sizes);
}

Result<bool> NetCalls::check(const Op& test, const Posted& posted, std::span<const int> sizes, Times* times) {
  if (posted.op->event->kind != Kind::irecv) return true;
  const bool early = mayBeEarly(*posted.op);
  for (size_t i = 0; i < posted.places.size(); ++i) {
    const uint64_t recorded =
        i < test.event->parts.size() ? test.event->parts[i].size : posted.places[i].size;
    if (!early && static_cast<uint64_t>(sizes[i]) != recorded)
      return error(fmt::format("message {} of tag {}: {} bytes came and the trace has {}",
                               posted.op->messages[i].number, posted.op->event->parts[i].tag, sizes[i],
                               recorded));
    TRY(const bool right, checkMessage(posted, i, recorded));
    if (!right) return false;
  }
  for (size_t i = 0; i < posted.places.size(); ++i) {
    ++times->messages;
    times->bytes += i < test.event->parts.size() ? test.event->parts[i].size : posted.places[i].size;
  }
  return true;
}

Result<bool> NetCalls::checkMessage(const Posted& posted, size_t part, uint64_t told) const {
  const auto wrong = firstWrong(posted.op->messages[part].seed, {posted.places[part].data, told});
  if (!wrong || mayBeEarly(*posted.op)) return !wrong;
  return error(fmt::format("message {} of tag {}, {} bytes: the byte at {} is wrong",
                           posted.op->messages[part].number, posted.op->event->parts[part].tag, told,
                           *wrong));
}

Compared& NetCalls::sumOf(const Posted& posted, Times* times) const {
  return posted.op->event->kind == Kind::irecv ? times->receives : times->sends;
}

}  // namespace weft::replay
