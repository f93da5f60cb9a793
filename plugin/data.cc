// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/data.h"

#include <array>
#include <span>

#include "src/core/testing.h"

// The data path's rare calls: groups of receives, flushes, errors. And test(), which NCCL calls most.
namespace weft::plugin {

ncclResult_t refuse(const char* call, const char* why) {
  return report(call, Error(Code::invalidArgument, "checking arguments", why), LogLevel::error);
}

ncclResult_t broken(HeldComm& held) {
  return resultOf(held.comm().error().code());
}

namespace {

// A request that is done already is NCCL's fault; any other failure is the comm's sticky error.
[[gnu::cold, gnu::noinline]] ncclResult_t failedTest(const core::Request* request) {
  if (!core::isLive(request)) return refuse("test", "the request is null or done already");
  return resultOf(core::errorOf(request).code());
}

// The fault of a receive, or null. 1 GiB is the most that the properties allow.
inline const char* checkMessage(const core::ReceiveSpec& spec) {
  if (spec.bytes > core::kMaxMessageBytes) return "the size is negative or over 1 GiB";
  if (spec.bytes > 0 && (!spec.data || !spec.memory)) return "the buffer or its registration is null";
  return nullptr;
}

using Group = std::array<core::ReceiveSpec, core::kMaxRecvs>;

// Copies NCCL's arrays, which live only during the call. Returns the fault in them, or null.
inline const char* readGroup(const ReceiveCall& call, Group& out) {
  if (call.count < 1 || call.count > core::kMaxRecvs) return "the group is empty or has over 8 receives";
  if (!call.data || !call.sizes || !call.mhandles) return "an array is null";
  for (int i = 0; i < call.count; i++) {
    core::ReceiveSpec& spec = out[static_cast<size_t>(i)];
    spec.data = call.data[i];
    spec.bytes = call.sizeOf(call.sizes, i);
    spec.tag = call.tags ? call.tags[i] : 0;
    spec.memory = static_cast<core::MemoryHandle*>(call.mhandles[i]);
    spec.profilerHandle = call.phandles ? call.phandles[i] : nullptr;
    if (const char* wrong = checkMessage(spec)) return wrong;
  }
  return nullptr;
}

std::span<const core::ReceiveSpec> used(const Group& group, int count) {
  return std::span<const core::ReceiveSpec>(group).first(static_cast<size_t>(count));
}

}  // namespace

ncclResult_t postReceive(void* recvComm, const ReceiveCall& call, void** request) {
  return guardData("irecv", [&]() -> ncclResult_t {
    if (!request) return refuse("irecv", "no place for the request");
    *request = nullptr;
    HeldComm* held = commOf(recvComm, Kind::receive);
    if (!held) return refuse("irecv", "the comm is null or not for receiving");
    if (!call.tags) return refuse("irecv", "the array of tags is null");
    Group group;
    if (const char* wrong = readGroup(call, group)) return refuse("irecv", wrong);
    return answer(*held, held->receive().irecv(used(group, call.count)), request);
  });
}

// A null request with success means to NCCL that nothing has to be waited for, so a lack of slots is an
// error.
ncclResult_t postFlush(void* recvComm, const ReceiveCall& call, void** request) {
  return guardData("iflush", [&]() -> ncclResult_t {
    if (!request) return refuse("iflush", "no place for the request");
    *request = nullptr;
    HeldComm* held = commOf(recvComm, Kind::receive);
    if (!held) return refuse("iflush", "the comm is null or not for receiving");
    Group group;
    if (const char* wrong = readGroup(call, group)) return refuse("iflush", wrong);
    return answer(*held, held->receive().iflush(used(group, call.count)), request);
  });
}

namespace {

// Not called in a forked child, nor without `done`. Each kind of request has a function of its own, so that
// neither saves the registers of the other.
template <core::Tested (*testKind)(core::Request*, int*)>
[[gnu::noinline]] ncclResult_t testAs(core::Request* request, int* done, int* sizes) noexcept {
  try {
    *done = 0;
    const core::Tested tested = testKind(request, sizes);
    *done = tested.done;
    return tested.ok ? ncclSuccess : failedTest(request);
  } catch (...) {
    return reportException("test");
  }
}

}  // namespace

// A message that left eagerly is answered here, without a try block.
ncclResult_t test(void* request, int* done, int* sizes) {
  if (inForkedChild()) [[unlikely]]
    return kForkedChild;
  if (!done) [[unlikely]]
    return refuse("test", "no place for the answer");
  auto* asked = static_cast<core::Request*>(request);
  if (core::isSlot(asked)) return testAs<&core::testSlot>(asked, done, sizes);
  if (!core::isDoneSend(asked)) return testAs<&core::testOwn>(asked, done, sizes);
  *done = core::test(asked, sizes).done;
  return ncclSuccess;
}

}  // namespace weft::plugin
