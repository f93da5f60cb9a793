// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/rma_calls.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "tools/replay/pattern.h"
#include "tools/replay/rank_run.h"

namespace weft::replay {

namespace {

using trace::Kind;
namespace at = trace::at;

}  // namespace

netdriver::RmaTable& RmaCalls::table() const {
  return *rank_->oneSided;
}

Status RmaCalls::init(const Op& op) {
  const ncclResult_t result = table().init(&context_, (*op.event)[at::kCommId]);
  if (result == ncclSuccess) return {};
  return error(std::string("init returned ") + netdriver::resultName(result));
}

void RmaCalls::finalize() {
  table().finalize(std::exchange(context_, nullptr));
}

Result<Answer> RmaCalls::listen() {
  const auto found = rank_->contexts.find(plan_->context);
  if (found == rank_->contexts.end()) return error("listens in a context that was not made");
  void* const context = static_cast<const RmaCalls&>(found->second->table()).context_;
  netdriver::Handle handle{};
  const ncclResult_t result = table().listen(context, device(), handle.data(), &comm_);
  if (result == ncclSuccess) rank_->board->publish({plan_->rank, plan_->number}, handle);
  return Answer{result, result == ncclSuccess};
}

Result<Answer> RmaCalls::connect(const Op& op, Times*) {
  const QueueRun* const listener = rank_->byPlan.at(plan_->listener);
  if (!listener->established() || !rank_->maySleep(op)) return Answer{};
  std::vector<netdriver::Handle> handles = handlesOfMembers();
  if (handles.empty()) return Answer{};
  std::vector<void*> pointers;
  for (netdriver::Handle& handle : handles) pointers.push_back(handle.data());
  const auto& listening = static_cast<const RmaCalls&>(listener->table());
  const ncclResult_t result =
      table().connect(nullptr, pointers.data(), static_cast<int>(pointers.size()),
                      static_cast<int>((*op.event)[at::kCollRank]), listening.comm_, &comm_);
  rank_->slept();
  return Answer{result, result == ncclSuccess};
}

Result<Answer> RmaCalls::accept(const Op&, Times*) {
  return Answer{ncclInvalidUsage, false};
}

ncclResult_t RmaCalls::close() {
  while (!windows_.empty()) release(windows_.begin()->first);
  if (void* const context = std::exchange(rmaContext_, nullptr)) table().destroyContext(context);
  void* const comm = std::exchange(comm_, nullptr);
  if (comm == nullptr) return ncclSuccess;
  return plan_->kind == QueueKind::rma ? table().closeColl(comm) : table().closeListen(comm);
}

Result<void*> RmaCalls::add(std::span<std::byte>) {
  return error("memory is registered that is no window");
}

void RmaCalls::remove(void*) {}

// Operations:

Status RmaCalls::prepare(const Op& op, CommMemory*, Posted*) {
  if (op.messages.empty() || op.messages[0].number == 0) return {};
  const trace::Part& part = op.event->parts[0];
  const auto window = windows_.find(part.memory);
  if (window == windows_.end()) return error("puts from a window that was given up");
  fill(op.messages[0].seed, window->second.span().subspan(part.offset, part.size));
  return {};
}

ncclResult_t RmaCalls::post(const Posted& posted, void** request) {
  const trace::Event& event = *posted.op->event;
  const auto handleOf = [&](uint64_t memory) {
    const auto window = windows_.find(memory);
    return window != windows_.end() ? window->second.mhandle : nullptr;
  };
  netdriver::RmaMove move;
  move.local = handleOf(event.parts[0].memory);
  move.localOffset = event.parts[0].offset + posted.op->aside;
  move.remote = handleOf(event.parts[1].memory);
  move.remoteOffset = event.parts[1].offset;
  move.bytes = event.parts[0].size;
  move.rank = static_cast<uint32_t>(event[at::kRmaRank]);
  move.context = static_cast<int>(event[at::kRmaContext]);
  move.more = (event[at::kRmaHints] & NCCL_RMA_OPT_AGGREGATE_REQUESTS) != 0;
  if (event.kind == Kind::iput) return table().put(rmaContext_, move, request);
  if (event.kind == Kind::iget) return table().get(rmaContext_, move, request);
  netdriver::RmaSignal signal;
  signal.mhandle = handleOf(event[at::kSignalMemory]);
  signal.offset = event[at::kSignalOffset];
  signal.value = event[at::kSignalValue];
  signal.strong = event[at::kSignalStrong] != 0;
  return table().putSignal(rmaContext_, move, signal, request);
}

ncclResult_t RmaCalls::flush(const Posted&, void**) {
  return ncclInvalidUsage;
}

ncclResult_t RmaCalls::test(void* request, int* done, int*) {
  const ncclResult_t result = table().test(comm_, request, done);
  if (result == ncclSuccess && *done == 0) progress();
  return result;
}

void RmaCalls::progress() const {
  if (rmaContext_ != nullptr) (void)table().progress(rmaContext_);
}

// Windows and contexts:

Result<Step> RmaCalls::service(const Op& op, Times* times) {
  const trace::Event& event = *op.event;
  switch (event.kind) {
    case Kind::createContext: {
      const auto contexts = static_cast<int>(event[at::kRmaContexts]);
      const ncclResult_t result = table().createContext(comm_, contexts, &rmaContext_);
      if (result == ncclSuccess) return Step::done;
      return error(std::string("createContext returned ") + netdriver::resultName(result));
    }
    case Kind::destroyContext: {
      TRY(const Step step, allArrived(times));
      if (step == Step::later) return step;
      table().destroyContext(std::exchange(rmaContext_, nullptr));
      return step;
    }
    case Kind::regMrSym:
      return registerWindow(op);
    case Kind::deregMr: {
      const uint64_t memory = event[at::kMemory];
      if (rmaContext_ != nullptr) {
        TRY(const Step step, arrived(memory));
        if (step == Step::later) return step;
        count(memory, times);
      }
      release(memory);
      return Step::done;
    }
    default:
      return Step::done;  // a flush: nothing is left to be done for memory of the host
  }
}

// All ranks of the group do it in the same order.
Result<Step> RmaCalls::registerWindow(const Op& op) {
  if (!rank_->maySleep(op)) return Step::later;
  const uint64_t memory = (*op.event)[at::kMemory];
  const MemoryFacts& facts = rank_->plan->memories.at(memory);
  Window window;
  window.shift = facts.address % kWindowPage;
  window.bytes = facts.aside + (facts.aside > 0 ? facts.aside : facts.bytes);
  TRY(window.buffer, netdriver::HostBuffer::create(std::max<size_t>(1, window.bytes) + window.shift));
  const ncclResult_t result = table().regMr(comm_, window.span().data(), window.bytes,
                                            (*op.event)[at::kWindowFlags], &window.mhandle);
  rank_->slept();
  if (result != ncclSuccess) return error(std::string("regMrSym returned ") + netdriver::resultName(result));
  windows_.emplace(memory, std::move(window));
  return Step::done;
}

// Not before all is here that other ranks put into it, as far as signals tell; without one the bytes do.
Result<Step> RmaCalls::arrived(uint64_t memory) const {
  const auto found = plan_->landings.find(memory);
  if (found == plan_->landings.end()) return Step::done;
  const Landing& landing = found->second;
  progress();
  if (!signalled(landing)) return Step::later;
  if (const auto what = wrong(memory, landing)) {
    if (!landing.certain) return Step::later;
    return error(*what);
  }
  return Step::done;
}

void RmaCalls::count(uint64_t memory, Times* times) const {
  const auto landing = plan_->landings.find(memory);
  if (landing == plan_->landings.end()) return;
  times->puts += landing->second.puts.size();
  for (const Landed& put : landing->second.puts) times->putBytes += put.bytes;
}

// Nothing comes any more when all words are what they have to be. The windows that are still there are
// compared now: what is left of them are deregistrations.
Result<Step> RmaCalls::allArrived(Times* times) {
  TRY(const Step step, arrived(0));
  if (step == Step::later) return step;
  const auto all = plan_->landings.find(0);
  if (all != plan_->landings.end())
    for (const auto& [where, value] : all->second.words)
      if (const auto now = valueOf(where); now && *now != value)
        return error(fmt::format("the word at {} of window {} is {} and has to be {}", where.second,
                                 where.first, *now, value));
  for (const auto& [memory, window] : windows_) {
    TRY(const Step one, arrived(memory));
    if (one == Step::later) return one;
  }
  for (const auto& [memory, window] : windows_) count(memory, times);
  return Step::done;
}

// Nothing: the window was given up, after all of its signals had come.
std::optional<uint64_t> RmaCalls::valueOf(std::pair<uint64_t, uint64_t> where) const {
  const auto window = windows_.find(where.first);
  if (window == windows_.end()) return std::nullopt;
  auto* word = reinterpret_cast<uint64_t*>(window->second.span().data() + where.second);
  return std::atomic_ref<uint64_t>(*word).load(std::memory_order_acquire);
}

bool RmaCalls::signalled(const Landing& landing) const {
  for (const auto& [where, value] : landing.words) {
    const auto now = valueOf(where);
    if (now && *now < value) return false;
  }
  return true;
}

std::optional<std::string> RmaCalls::wrong(uint64_t memory, const Landing& landing) const {
  const auto window = windows_.find(memory);
  for (const Landed& put : landing.puts) {
    const auto at = firstOfNone(put.seeds, window->second.span().subspan(put.offset, put.bytes));
    if (at)
      return fmt::format("the put of rank {} to {} of window {}, {} bytes: the byte at {} is wrong", put.from,
                         put.offset, memory, put.bytes, *at);
  }
  return std::nullopt;
}

void RmaCalls::release(uint64_t memory) {
  const auto window = windows_.find(memory);
  if (window == windows_.end()) return;
  table().deregMr(comm_, window->second.mhandle);
  windows_.erase(window);
}

}  // namespace weft::replay
