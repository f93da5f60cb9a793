// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstring>

#include "providers/local/endpoint.h"

// A frame as its receiver took it out of its inbox: a copy of the head, and a pointer to inlined bytes. Only
// LocalEndpoint's sources include it.
namespace weft::local {

struct LocalEndpoint::Taken {
  explicit Taken(const Frame& frame)
      : kind(frame.kind),
        place(frame.place),
        flags(frame.flags),
        consumed(frame.consumed),
        imm(frame.imm),
        length(frame.length),
        whole(frame.whole),
        key(frame.key),
        offset(frame.offset),
        source(frame.source),
        inlined(frame.inlined.data()) {}
  // True where kind, place and length fit together. Everything comes from the peer.
  bool wellFormed() const {
    if (kind >= FrameKind::forget && kind <= FrameKind::answer) return length == 0;
    if (kind == FrameKind::read) return length > 0 && length <= kReplyBytes;
    if (kind != FrameKind::write && kind != FrameKind::notify) return false;
    if (length > whole || whole > kMaxWriteBytes) return false;
    switch (place) {
      case Place::none:
        return length == 0;
      case Place::inlined:
        return length <= kInlineBytes;
      case Place::ring:
        return source <= kRingBytes && length <= kRingBytes - source;
      case Place::shared:
        return length > 0 && length <= kMostShared;
    }
    return false;
  }

  // Not for bytes in state `shared`, which are in GPU memory. The peer can still change the bytes, but not
  // their place.
  const std::byte* bytes(const Inbox& inbox) const {
    return place == Place::inlined ? inlined : inbox.ring.data() + source;
  }

  uint64_t share() const {  // of bytes in state `shared`
    uint64_t number = 0;
    std::memcpy(&number, inlined, sizeof number);
    return number;
  }

  const FrameKind kind;
  const Place place;
  const uint16_t flags;
  const uint32_t consumed, imm, length, whole;
  const uint64_t key, offset, source;
  const std::byte* const inlined;
};

}  // namespace weft::local
