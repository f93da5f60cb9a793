// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "src/control/hub.h"

// A hub without sockets and threads: calls, replies and refusals travel at once to the other hubs of the same
// exchange, and messages as the Peers that the test made carry them. Used by one thread.
namespace weft::test {

class FakeHub;

// The state that the hubs of one test share: who listens, and which calls wait for an answer.
struct HubExchange {
  struct Waiting {  // a call, until it is answered or forgotten
    control::Call::State state = control::Call::State::pending;
    control::PeerRef answeredBy;
    Bytes body;
    std::unique_ptr<Error> error;
  };
  struct Listening {
    FakeHub* hub = nullptr;
    std::deque<control::Request> requests;
  };
  std::map<uint32_t, Listening> listeners;
  std::map<uint64_t, std::weak_ptr<Waiting>> calls;
  uint32_t lastListener = 0;
  uint64_t lastCall = 0;
};

class FakeHub final : public control::Hub {
 public:
  // `other` is how this process sees the one that the others run in.
  FakeHub(std::shared_ptr<HubExchange> exchange, control::PeerRef other, control::HubOptions options)
      : exchange_(std::move(exchange)), other_(std::move(other)), options_(std::move(options)) {}

  control::Handler& handler() { return *options_.handler; }
  const control::PeerRef& other() const { return other_; }

  const control::Incarnation& incarnation() const override { return incarnation_; }
  Result<std::unique_ptr<control::Listener>> listen() override;
  std::unique_ptr<control::Call> call(const control::Handle& handle, Bytes body) override;
  void reply(const control::Request& request, Bytes body) override;
  void refuse(const control::Request& request, const Error& why) override;
  void runInline() override {}  // the test says when messages travel
  void wake() override {}
  void post(std::function<void()> work) override { work(); }
  bool onControlThread() const override { return false; }

 private:
  std::shared_ptr<HubExchange::Waiting> waiting(uint64_t id);

  std::shared_ptr<HubExchange> exchange_;
  control::PeerRef other_;
  control::HubOptions options_;
  control::Incarnation incarnation_{};
};

}  // namespace weft::test
