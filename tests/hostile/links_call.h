// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "src/control/hub.h"
#include "tests/support/patience.h"
#include "tests/unit/control_support.h"

// The call that the man in the middle may spoil, as each test of control links makes it. One thread.
namespace weft::hostile {

inline constexpr Milliseconds kConnect{400};
// Of each direction: the handshake, the infos, the call and its reply.
inline constexpr size_t kPlaces = 560;

// From `a` to the listener of `b`. Returns what went wrong; empty: it ended as it may.
inline std::string callThrough(control::Hub& a, control::Hub& b, control::Listener& listener) {
  const auto started = std::chrono::steady_clock::now();
  auto call = a.call(listener.handle(), control::bytesOf("hello"));
  while (call->state() == control::Call::State::pending) {
    auto taken = listener.take();
    if (taken && *taken) {
      const control::Request request = *taken.take();
      if (control::textOf(request.body) != "hello") return "the listener was told other words";
      if (request.peer->incarnation() != a.incarnation()) return "another process called";
      b.reply(request, control::bytesOf("welcome"));
    }
    if (std::chrono::steady_clock::now() - started > 10 * kConnect * test::patience())
      return "the call is still undecided";
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  if (call->state() == control::Call::State::failed) return call->error().message().empty() ? "no words" : "";
  if (control::textOf(call->replyBody()) != "welcome") return "the caller was told other words";
  if (call->peer()->incarnation() != b.incarnation()) return "another process answered";
  return "";
}

}  // namespace weft::hostile
