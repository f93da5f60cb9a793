// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "tools/record/recorder.h"

// The objects that NCCL holds while it is recorded: each stands for what the wrapped plugin gave out, so that
// a call finds its number without a search.
namespace weft::record {

// NCCL gives its hint before each post; only one that differs from the last is recorded.
struct Context {
  void* real = nullptr;
  uint64_t number = 0;
  SpinLock lock;
  std::array<uint64_t, 11> attributes{};
};

// A registration. Made and freed by regMr and deregMr.
struct Memory {
  void* real = nullptr;
  uint64_t number = 0;
  uintptr_t address = 0;
};

struct Comm;

struct Request {
  void* real = nullptr;
  Comm* comm = nullptr;
  uint64_t number = 0;
  uint64_t tests = 0;
  int sizes = 0;  // of a receive: how many test tells
  bool open = false;
};

enum class Side : uint8_t { send, recv, listen, coll };

// Calls that said "not now" since the last one that did not.
struct Waiting {
  uint64_t calls = 0;
  uint64_t since = 0;
};

// Owns its requests: those that are never done go with it. The lock is for plugins' users that test on
// another thread than they post.
struct Comm {
  void* real = nullptr;
  uint64_t number = 0;
  Side side = Side::send;
  void* realContext = nullptr;  // of a listener
  Waiting waiting;
  SpinLock lock;
  std::deque<Request> requests;
  std::vector<Request*> free;

  Request* newRequest(void* theirs, int sizes, uint64_t id) {
    const std::lock_guard guard(lock);
    if (free.empty()) free.push_back(&requests.emplace_back());
    Request* request = free.back();
    free.pop_back();
    *request = {theirs, this, id, 0, sizes, true};
    return request;
  }
  void giveBack(Request* request) {
    const std::lock_guard guard(lock);
    request->open = false;
    free.push_back(request);
  }
};

}  // namespace weft::record
