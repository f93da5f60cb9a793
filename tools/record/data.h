// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <array>

#include "tools/record/objects.h"

// The calls that move data, forwarded and recorded. A `forward` makes the wrapped plugin's call with its own
// objects. A call that says "not now" is counted, not written. NCCL's progress thread; nothing here waits or
// allocates once a comm has had as many requests as it has at a time.
namespace weft::record {

template <class Wrapper>
void* realOf(void* wrapper) {
  return wrapper != nullptr ? static_cast<Wrapper*>(wrapper)->real : nullptr;
}

inline trace::Part partOf(void* data, size_t size, int tag, void* mhandle) {
  const auto* memory = static_cast<const Memory*>(mhandle);
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (memory == nullptr) return {size, 0, 0, tag};
  return {size, memory->number, address - memory->address, tag};
}

// A post of one or several messages.
struct Post {
  trace::Kind kind;
  Comm* comm;
  int count;
  void* const* data;
  void* const* mhandles;
  const int* tags;                 // null: none
  std::array<uint64_t, 5> more{};  // what the kind has behind not-now and waited; of irecv: flags
};

// How many sizes the test of such a request tells.
inline int toldBy(const Post& post) {
  if (post.kind == trace::Kind::irecv) return post.count;
  return post.kind == trace::Kind::isend || post.kind == trace::Kind::iflush ? 0 : 1;
}

inline bool isHint(const void* request) {
  return request == reinterpret_cast<const void*>(NCCL_NET_OPTIONAL_RECV_COMPLETION);
}

// How long a call took that began then, and what it did.
struct Timed {
  uint64_t began;
  uint64_t took;
  ncclResult_t result;
};

template <class SizeAt>
void writePost(const Post& post, const Timed& timed, uint64_t request, SizeAt&& sizeAt) {
  Recorder& recorder = Recorder::instance();
  trace::Event& event = recorder.begin(post.kind, timed.began, timed.took, timed.result);
  event.values[trace::at::kComm] = post.comm->number;
  event.values[trace::at::kRequest] = request;
  if (post.kind != trace::Kind::iflush) {
    event.values[trace::at::kNotNow] = post.comm->waiting.calls;
    if (post.comm->waiting.calls > 0)
      event.values[trace::at::kWaited] = timed.began - post.comm->waiting.since;
    std::copy(post.more.begin(), post.more.end(), event.values.begin() + trace::at::kFlags);
    post.comm->waiting = {};
  }
  for (int i = 0; i < post.count; ++i)
    event.parts.push_back(
        partOf(post.data[i], sizeAt(i), post.tags != nullptr ? post.tags[i] : 0, post.mhandles[i]));
  recorder.add();
}

template <class SizeAt, class Forward>
ncclResult_t recordPost(const Post& post, void** request, SizeAt&& sizeAt, Forward&& forward) {
  Recorder& recorder = Recorder::instance();
  Timed timed{recorder.now(), 0, ncclSuccess};
  timed.result = forward();
  const bool posted = timed.result == ncclSuccess && *request != nullptr && !isHint(*request);
  if (timed.result == ncclSuccess && !posted && post.kind != trace::Kind::iflush) {
    if (post.comm->waiting.calls++ == 0) post.comm->waiting.since = timed.began;
    return timed.result;
  }
  timed.took = recorder.now() - timed.began;
  const uint64_t number = posted ? recorder.newRequest() : 0;
  writePost(post, timed, number, sizeAt);
  if (posted) *request = post.comm->newRequest(*request, toldBy(post), number);
  return timed.result;
}

template <class Forward>
ncclResult_t recordSend(void* comm, void* data, size_t size, int tag, void* mhandle, void** request,
                        Forward&& forward) {
  void* const realComm = realOf<Comm>(comm);
  void* const realMemory = realOf<Memory>(mhandle);
  if (comm == nullptr || request == nullptr) return forward(realComm, realMemory);
  const Post post{trace::Kind::isend, static_cast<Comm*>(comm), 1, &data, &mhandle, &tag};
  return recordPost(
      post, request, [&](int) { return size; }, [&] { return forward(realComm, realMemory); });
}

// The wrapped plugin's registrations of a group.
using RealMemories = std::array<void*, trace::kMostParts>;

template <class Size>
struct Group {
  int count;
  void** data;
  const Size* sizes;
  const int* tags;
  void** mhandles;

  bool usable() const {
    return count >= 0 && count <= static_cast<int>(trace::kMostParts) && data != nullptr &&
           sizes != nullptr && mhandles != nullptr;
  }
  RealMemories real() const {
    RealMemories all;
    for (int i = 0; i < count; ++i) all[static_cast<size_t>(i)] = realOf<Memory>(mhandles[i]);
    return all;
  }
};

template <class Size, class Forward>
ncclResult_t recordGroup(trace::Kind kind, void* comm, const Group<Size>& group, void** request,
                         Forward&& forward) {
  if (comm == nullptr || request == nullptr || !group.usable()) return ncclInvalidArgument;
  RealMemories memories = group.real();
  Post post{kind, static_cast<Comm*>(comm), group.count, group.data, group.mhandles, group.tags};
  if (kind == trace::Kind::irecv && isHint(*request)) post.more[0] = trace::kOptionalCompletion;
  return recordPost(
      post, request, [&](int i) { return static_cast<size_t>(group.sizes[i]); },
      [&] { return forward(post.comm->real, memories.data()); });
}

template <class Forward>
ncclResult_t recordTest(void* handle, int* done, int* sizes, Forward&& forward) {
  auto* request = static_cast<Request*>(handle);
  if (request == nullptr || done == nullptr || !request->open) return ncclInvalidArgument;
  std::array<int, trace::kMostParts> told{};
  ++request->tests;
  const ncclResult_t result = forward(request->real, done, request->sizes > 0 ? told.data() : sizes);
  if (result == ncclSuccess && *done == 0) return result;
  Recorder& recorder = Recorder::instance();
  trace::Event& event = recorder.begin(trace::Kind::test, recorder.now(), 0, result);
  event.values[trace::at::kComm] = request->comm->number;
  event.values[trace::at::kRequest] = request->number;
  event.values[trace::at::kTests] = request->tests;
  for (int i = 0; i < request->sizes; ++i) {
    const int size = told[static_cast<size_t>(i)];
    event.parts.push_back({static_cast<uint64_t>(size), 0, 0, 0});
    if (sizes != nullptr) sizes[i] = size;
  }
  recorder.add();
  if (result == ncclSuccess) request->comm->giveBack(request);
  return result;
}

}  // namespace weft::record
