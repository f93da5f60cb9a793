// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/core/engine.h"
#include "src/core/send_comm.h"

// What every way out begins with: its request, and a look for its CTS. Inline in those who send, as each
// message goes through it. Only inside the engine.
namespace weft::core {

inline Request* SendCommImpl::begin(const Send& send, uint32_t k) {
  if (inFlight_ >= kMostInFlight) [[unlikely]]
    return nullptr;
  Request* request = engine().takeRequest(RequestKind::send, this);
  if (!request) [[unlikely]]
    return nullptr;
  request->bytes = send.bytes;
  request->sizes[0] = static_cast<int>(send.bytes);
  request->tags[0] = static_cast<int>(send.tag);
  request->sequence[0] = k;
  beginEvent(request, 0, send.profilerHandle, send.bytes);
  inFlight_++;
  messages_++;
  return request;
}

// The CTS that waits for this message, or none. In the order of k; one that is missing at the front belongs
// to a message that will leave eagerly, or is still on its way.
inline HeldCts SendCommImpl::ctsFor(const TagState& tag) const {
  if (tag.first == kNoCts) return HeldCts(nullptr);
  const HeldCts cts(ctsAt(tag.first));
  return cts.k() == tag.k ? cts : HeldCts(nullptr);
}

}  // namespace weft::core
