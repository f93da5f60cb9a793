// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/support/fake_hub.h"

namespace weft::test {

namespace {

using Waiting = HubExchange::Waiting;

class FakeListener final : public control::Listener {
 public:
  FakeListener(std::shared_ptr<HubExchange> exchange, FakeHub* hub) : exchange_(std::move(exchange)) {
    handle_.listener = ++exchange_->lastListener;
    handle_.addresses = {SocketAddress::loopback(1)};
    exchange_->listeners[handle_.listener].hub = hub;
  }
  ~FakeListener() override { exchange_->listeners.erase(handle_.listener); }
  const control::Handle& handle() const override { return handle_; }
  Result<std::optional<control::Request>> take() override {
    auto& requests = exchange_->listeners[handle_.listener].requests;
    if (requests.empty()) return std::optional<control::Request>();
    std::optional<control::Request> first(std::move(requests.front()));
    requests.pop_front();
    return first;
  }

 private:
  std::shared_ptr<HubExchange> exchange_;
  control::Handle handle_;
};

class FakeCall final : public control::Call {
 public:
  explicit FakeCall(std::shared_ptr<Waiting> waiting) : waiting_(std::move(waiting)) {}
  State state() const override { return waiting_->state; }
  control::PeerRef peer() const override { return waiting_->answeredBy; }
  const Bytes& replyBody() const override { return waiting_->body; }
  Error error() const override { return *waiting_->error; }

 private:
  std::shared_ptr<Waiting> waiting_;
};

void fail(Waiting* waiting, const Error& why) {
  waiting->error = std::make_unique<Error>(why);
  waiting->state = control::Call::State::failed;
}

}  // namespace

Result<std::unique_ptr<control::Listener>> FakeHub::listen() {
  return std::unique_ptr<control::Listener>(std::make_unique<FakeListener>(exchange_, this));
}

std::unique_ptr<control::Call> FakeHub::call(const control::Handle& handle, Bytes body) {
  auto waiting = std::make_shared<Waiting>();
  const auto listening = exchange_->listeners.find(handle.listener);
  if (listening == exchange_->listeners.end()) {
    fail(waiting.get(), Error(Code::remote, "connecting", "listener closed"));
  } else {
    waiting->answeredBy = other_;
    const uint64_t id = ++exchange_->lastCall;
    exchange_->calls[id] = waiting;
    listening->second.requests.push_back({listening->second.hub->other(), id, std::move(body)});
  }
  return std::make_unique<FakeCall>(std::move(waiting));
}

std::shared_ptr<Waiting> FakeHub::waiting(uint64_t id) {
  const auto call = exchange_->calls.find(id);
  if (call == exchange_->calls.end()) return nullptr;
  auto found = call->second.lock();
  exchange_->calls.erase(call);
  return found;
}

void FakeHub::reply(const control::Request& request, Bytes body) {
  if (const auto call = waiting(request.id)) {
    call->body = std::move(body);
    call->state = control::Call::State::replied;
  }
}

void FakeHub::refuse(const control::Request& request, const Error& why) {
  if (const auto call = waiting(request.id)) fail(call.get(), why);
}

}  // namespace weft::test
