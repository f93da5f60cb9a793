// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/base/log.h"
#include "src/control/hub.h"
#include "tests/support/catch.h"

// What the tests of control links share: hubs on loopback, a handler that remembers, waiting with a deadline.
namespace weft::control {

using std::chrono::milliseconds;

// True as soon as `done` is; false when it is not within `limit`.
inline bool eventually(const std::function<bool()>& done, milliseconds limit = milliseconds(8000)) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

inline Bytes bytesOf(std::string_view text) {
  const auto span = std::as_bytes(std::span(text.data(), text.size()));
  return Bytes(span.begin(), span.end());
}

inline std::string textOf(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

struct Message {
  PeerRef peer;
  uint16_t type = 0;
  Bytes body;
};

class Recorder : public Handler {
 public:
  void onMessage(const PeerRef& peer, uint16_t type, std::span<const std::byte> body) override {
    std::lock_guard lock(mutex_);
    messages_.push_back({peer, type, Bytes(body.begin(), body.end())});
  }
  void onPeerDead(const PeerRef&, const Error& reason) override {
    std::lock_guard lock(mutex_);
    deaths_.push_back(reason.message());
  }
  Milliseconds onTick(TimePoint) override {
    ticks_++;
    return Milliseconds(10000);
  }

  size_t count() {
    std::lock_guard lock(mutex_);
    return messages_.size();
  }
  std::vector<Message> messages() {
    std::lock_guard lock(mutex_);
    return messages_;
  }
  std::vector<std::string> deaths() {
    std::lock_guard lock(mutex_);
    return deaths_;
  }
  int ticks() const { return ticks_; }

 private:
  std::mutex mutex_;
  std::vector<Message> messages_;
  std::vector<std::string> deaths_;
  std::atomic<int> ticks_{0};
};

// What was logged at WARN while this object lives.
class WarningCatcher {
 public:
  WarningCatcher() { before_ = setLogSink(&WarningCatcher::sink); }
  ~WarningCatcher() {
    setLogSink(before_);
    std::lock_guard lock(mutex());
    lines().clear();
  }
  std::vector<std::string> warnings() const {
    std::lock_guard lock(mutex());
    return lines();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::vector<std::string>& lines() {
    static std::vector<std::string> l;
    return l;
  }
  static void sink(LogLevel level, const char*, int, const char* message) {
    if (level > LogLevel::warn) return;
    std::lock_guard lock(mutex());
    lines().emplace_back(message);
  }
  LogSink before_;
};

// A hub on loopback with what it heard.
struct Side {
  explicit Side(Config config = {}, Fingerprint fingerprint = {{"plugin", "test", true}}) {
    config.socketIfname = "=lo";
    HubOptions options;
    options.config = config;
    options.fingerprint = std::move(fingerprint);
    options.handler = heard;
    auto made = Hub::create(std::move(options));
    REQUIRE(made);
    hub = made.take();
  }
  std::unique_ptr<Listener> listen() {
    auto listener = hub->listen();
    REQUIRE(listener);
    return listener.take();
  }

  std::shared_ptr<Recorder> heard = std::make_shared<Recorder>();
  std::shared_ptr<Hub> hub;
};

inline bool decided(const Call& call) {
  return eventually([&] { return call.state() != Call::State::pending; });
}

// The next request at a listener, or nothing in time.
inline std::optional<Request> nextRequest(Listener& listener) {
  std::optional<Request> request;
  (void)eventually([&] {
    auto taken = listener.take();
    if (taken && *taken) request = *taken.take();
    return !taken || request.has_value();
  });
  return request;
}

// A call that is taken, answered and has arrived; the connector's peer and the acceptor's.
struct Pair {
  PeerRef near;
  PeerRef far;
};
inline Pair connect(Hub& from, Hub& to, Listener& listener) {
  auto call = from.call(listener.handle(), bytesOf("hello"));
  auto request = nextRequest(listener);
  REQUIRE(request);
  CHECK(textOf(request->body) == "hello");
  to.reply(*request, bytesOf("welcome"));
  REQUIRE(decided(*call));
  REQUIRE(call->state() == Call::State::replied);
  CHECK(textOf(call->replyBody()) == "welcome");
  return {call->peer(), request->peer};
}

}  // namespace weft::control
