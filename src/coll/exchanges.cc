// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/exchanges.h"

#include <algorithm>

#include "src/base/log.h"

// The order of the exchanges, and what all members have in common.
namespace weft::coll {

Exchanges::Exchanges(const BlockPool::Options& blocks, size_t resultBytes) : blocks_(members_, blocks) {
  for (size_t place = 0; place < kOperations; place++)
    exchanges_.push_back(std::make_unique<Exchange>(members_, blocks_, resultBytes));
}

// Registers on both comms to every member, or on none.
Result<std::unique_ptr<GroupMemory>> Exchanges::registerMemory(const MemoryDesc& desc) {
  auto memory = std::make_unique<ComMemory>();
  const auto count = static_cast<size_t>(members_.count());
  memory->sending.resize(count);
  memory->receiving.resize(count);
  Status status;
  for (size_t m = 0; m < count && status; m++) {
    const Pipe* pipe = members_.pipes[m];
    if (!pipe) continue;
    auto sending = pipe->sending().registerMemory(desc);
    auto receiving = pipe->receiving().registerMemory(desc);
    memory->sending[m] = sending ? *sending : nullptr;
    memory->receiving[m] = receiving ? *receiving : nullptr;
    if (!sending) status = sending.takeError();
    if (!receiving) status = receiving.takeError();
  }
  if (status) return std::unique_ptr<GroupMemory>(std::move(memory));
  deregisterMemory(*memory);
  return status.takeError();
}

void Exchanges::deregisterMemory(GroupMemory& memory) {
  auto& known = static_cast<ComMemory&>(memory);
  for (size_t m = 0; m < known.sending.size(); m++) {
    if (known.sending[m]) (void)members_.pipes[m]->sending().deregisterMemory(known.sending[m]);
    if (known.receiving[m]) (void)members_.pipes[m]->receiving().deregisterMemory(known.receiving[m]);
  }
}

Backend::Begun Exchanges::begin(uint64_t turn, const Operation& operation) {
  Exchange& exchange = exchangeOf(turn);
  plan(operation, &exchange.plan());
  moving_.push_back(&exchange);
  exchange.begin(turn, operation);
  pass();
  return state_ == State::moving ? Begun::begun : Begun::failed;
}

// A step of all exchanges, in their order. An exchange posts only after all exchanges before it have posted
// all they can: the requests and blocks that they still lack must not go to a later one, or the members could
// wait for each other in a circle.
void Exchanges::pass() {
  if (state_ != State::moving) return;
  if (!passOwn()) return enter(State::failed);
  bool mayPost = true;
  for (auto at = moving_.begin(); at != moving_.end();) {
    Exchange& exchange = **at;
    const uint64_t before = exchange.bytesSent();
    const Exchange::Step step = exchange.progress(at == moving_.begin(), mayPost);
    bytesSent_ += exchange.bytesSent() - before;
    mayPost = mayPost && !exchange.refused();
    if (step == Exchange::Step::failed) {
      fault_.set(exchange.fault().member, exchange.fault().why);
      return enter(State::failed);
    }
    at = step == Exchange::Step::done ? moving_.erase(at) : std::next(at);
  }
}

Backend::Step Exchanges::advance(uint64_t turn) {
  const Exchange& exchange = exchangeOf(turn);
  if (!exchange.isDone()) pass();
  if (exchange.isDone()) return Step::done;
  return state_ == State::failed ? Step::failed : Step::going;
}

// A culprit that has left is named as such; the error of its connection would only say that it is closed.
std::string Exchanges::failure() {
  const Pipe* pipe =
      fault_.member < 0 || fault_.member >= members_.count() ? nullptr : members_.pipe(fault_.member);
  WEFT_LOG(info, "collective group: %s: %s", nameOf(fault_.member).c_str(), fault_.why.c_str());
  if (pipe && pipe->look() == Pipe::State::left) return nameOf(fault_.member) + " left the group";
  return nameOf(fault_.member) + " failed: " + fault_.why;
}

// The heaviest state of all members.
Backend::Heard Exchanges::hear() {
  Heard heaviest;
  for (int member = 0; member < members_.count(); member++) {
    const Pipe* pipe = members_.pipe(member);
    const Pipe::State state = pipe ? pipe->look() : Pipe::State::open;
    if (state <= heaviest.state) continue;
    heaviest.state = state;
    if (state == Pipe::State::alarmed) heaviest.why = pipe->alarm();
    if (state == Pipe::State::broken) heaviest.why = nameOf(member) + " failed: " + pipe->fault();
    if (state == Pipe::State::left) heaviest.why = nameOf(member) + " left the group";
  }
  return heaviest;
}

void Exchanges::fail(const std::string& why) {
  enter(State::halted);
  for (const Pipe* pipe : members_.pipes)
    if (pipe) pipe->fail(why);
}

}  // namespace weft::coll
