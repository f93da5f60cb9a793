// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <span>

#include "plugin/calls.h"
#include "plugin/guard.h"

// Listeners and comms: made and closed. connect and accept never block; NCCL calls them until a comm comes.
namespace weft::plugin {

namespace {

using HandleBytes = std::span<std::byte, control::kHandleBytes>;
static_assert(control::kHandleBytes == NCCL_NET_HANDLE_MAXSIZE);

// NCCL's handle has exactly the size of ours.
HandleBytes handleBytes(void* handle) {
  return HandleBytes(static_cast<std::byte*>(handle), control::kHandleBytes);
}

// Neither NCCL's handle nor the place for the result may be null. Clears the place, as every output is
// written in every case.
Status checkPlaces(const char* operation, const void* handle, void** out) {
  if (out) *out = nullptr;
  if (handle && out) return {};
  return Error(Code::invalidArgument, operation,
               handle ? "no place for the comm" : "what to start from is null");
}

// Closing null is allowed: NCCL also closes what it never got. The object is destroyed without the plugin's
// lock, as closing waits.
ncclResult_t close(const char* call, void* pointer, Kind kind) {
  return guard(call, [&]() -> Status {
    if (!pointer) return {};
    TRY(const std::unique_ptr<Held> dying, Plugin::get().release(pointer, kind));
    dying->close();
    return {};
  });
}

}  // namespace

// Fills NCCL's handle, which NCCL sends to the connecting rank.
ncclResult_t listenOn(const ContextChoice& choice, int device, void* handle, void** listenComm) {
  return guard("listen", [&]() -> Status {
    TRY(checkPlaces("listening", handle, listenComm));
    TRY(const ContextFound found, Plugin::get().find(choice));
    TRY(auto listener, found.context->net().listen(found.context, device, handleBytes(handle)));
    *listenComm =
        Plugin::get().keep(std::make_unique<HeldListener>(found.held, found.context, std::move(listener)));
    return {};
  });
}

// The scratch part of the handle keeps the progress between calls, so NCCL has to pass the same copy.
ncclResult_t connectTo(const ContextChoice& choice, int device, void* handle, void** sendComm) {
  return guard("connect", [&]() -> Status {
    TRY(checkPlaces("connecting", handle, sendComm));
    TRY(const ContextFound found, Plugin::get().find(choice));
    TRY(auto comm, found.context->net().connect(found.context, device, handleBytes(handle)));
    if (comm) *sendComm = Plugin::get().keep(std::make_unique<HeldComm>(found.held, std::move(comm)));
    return {};
  });
}

ncclResult_t acceptFrom(void* listenComm, void** recvComm) {
  return guard("accept", [&]() -> Status {
    TRY(checkPlaces("accepting", listenComm, recvComm));
    auto* held = static_cast<HeldListener*>(heldOf(listenComm, Kind::listener));
    if (!held) return Error(Code::invalidArgument, "accepting", "the listener is not of this plugin");
    TRY(auto comm, held->net().accept(held->listener()));
    if (comm) *recvComm = Plugin::get().keep(std::make_unique<HeldComm>(held->owner(), std::move(comm)));
    return {};
  });
}

ncclResult_t closeSend(void* sendComm) {
  return close("closeSend", sendComm, Kind::send);
}

ncclResult_t closeRecv(void* recvComm) {
  return close("closeRecv", recvComm, Kind::receive);
}

ncclResult_t closeListen(void* listenComm) {
  return close("closeListen", listenComm, Kind::listener);
}

}  // namespace weft::plugin
