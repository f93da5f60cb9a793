// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>

#include "src/base/reserve.h"
#include "src/core/meeting.h"
#include "src/core/net.h"
#include "src/core/runtime.h"

// The calls of a Net that connect, and the end of its contexts: what needs a runtime.
namespace weft::core {

namespace {

uint64_t readToken(std::span<const std::byte, control::kHandleBytes> handle) {
  uint64_t token;
  std::memcpy(&token, handle.data() + control::kScratchOffset, sizeof token);
  return token;
}

void writeToken(std::span<std::byte, control::kHandleBytes> handle, uint64_t token) {
  std::memcpy(handle.data() + control::kScratchOffset, &token, sizeof token);
}

}  // namespace

Context::~Context() {
  const MustNotFail closing;
  net_->releaseContext(this);
}

void Context::close() {
  const MustNotFail closing;
  net_->closeContext(this);
}

void Context::hold(std::shared_ptr<Runtime> runtime) {
  const std::lock_guard lock(mutex_);
  if (options_.perCommunicator) held_.swap(runtime);  // the one before goes after the lock
}

Result<std::shared_ptr<Runtime>> Net::runtime() {
  const std::lock_guard lock(runtimeMutex_);
  if (auto living = runtime_.lock()) return living;
  TRY(auto fresh, Runtime::create(shared_from_this()));
  runtime_ = fresh;
  return fresh;
}

std::shared_ptr<Runtime> Net::livingRuntime() {
  const std::lock_guard lock(runtimeMutex_);
  return runtime_.lock();
}

Result<std::unique_ptr<ListenComm>> Net::listen(const ContextRef& context, int device,
                                                std::span<std::byte, control::kHandleBytes> handleOut) {
  if (device < 0 || device >= deviceCount()) return noSuchDevice(device);
  TRY(auto living, runtime());
  context->hold(living);
  settle(living);
  TRY(auto listener, living->hub().listen());
  std::memset(handleOut.data(), 0, handleOut.size());
  listener->handle().encode(handleOut);
  writeToken(handleOut, 0);
  return std::unique_ptr<ListenComm>(
      std::make_unique<Listening>(living, context, device, std::move(listener)));
}

Result<std::unique_ptr<SendComm>> Net::connect(const ContextRef& context, int device,
                                               std::span<std::byte, control::kHandleBytes> handle) {
  if (device < 0 || device >= deviceCount()) return noSuchDevice(device);
  TRY(control::Handle target, control::Handle::decode(handle));
  TRY(auto living, runtime());
  context->hold(living);
  uint64_t token = readToken(handle);
  auto meeting =
      token == 0 ? nullptr : std::static_pointer_cast<Meeting>(living->pending().find(token, clock().now()));
  if (token != 0 && (!meeting || !meeting->belongsTo(context.get(), device, target.listener))) {
    return Error(
        Code::invalidArgument, "connecting",
        "the handle's scratch part does not belong to a connection being made here; pass a fresh copy");
  }
  if (!meeting) {
    meeting = Meeting::ask(*living, context, device, target);
    token = living->pending().keep(meeting);
    writeToken(handle, token);
    settle(living);
  }
  living->hub().runInline();
  auto comm = meeting->stepAsking(living, context);
  if (comm && !*comm) return comm;
  living->pending().drop(token);
  settle(living);
  writeToken(handle, 0);
  return comm;
}

// Between two calls of connect only `connecting_` keeps the runtime; it goes with the last connection being
// made.
void Net::settle(const std::shared_ptr<Runtime>& living) {
  living->pending().dropExpired(clock().now());  // which closes comms
  std::shared_ptr<Runtime> released;             // after the lock: it may be the last one
  const std::lock_guard lock(runtimeMutex_);
  released = std::exchange(connecting_, living->connecting() ? living : nullptr);
}

void Net::releaseContext(const Context* context) {
  if (context->options().perCommunicator) {
    const std::lock_guard lock(mutex_);
    seats_.erase({context->options().communicator, context->seat()});
  }
  const std::shared_ptr<Runtime> living = livingRuntime();
  if (!living) return;
  living->pending().dropOf(context);
  settle(living);
}

void Net::closeContext(const Context* context) {
  const std::shared_ptr<Runtime> living = livingRuntime();
  if (!living) return;
  living->pending().dropOf(context);
  living->awaitClosing();
}

Result<std::unique_ptr<RecvComm>> Net::accept(ListenComm& listener) {
  return static_cast<Listening&>(listener).step();
}

}  // namespace weft::core
