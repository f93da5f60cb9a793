// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>

#include "src/base/crypto/noise.h"
#include "src/base/crypto/seal.h"
#include "src/base/net/sockets.h"
#include "src/control/wire.h"

// The frames of one connection as they are on the wire: the length in clear, and all that follows it sealed
// with the keys of the handshake, or as it is where WEFT_ENCRYPT is off. Values; a connection has one.
// Control thread.
namespace weft::control {

class FrameSeal {
 public:
  FrameSeal(const NoiseKeys& keys, bool inClear) : out_(keys.send), in_(keys.receive), inClear_(inClear) {}

  bool inClear() const { return inClear_; }
  // Appends the frame to `out`, as the next one that leaves.
  void append(const FrameHeader& header, std::span<const std::byte> body, Bytes& out);

  // Of a frame whose body has so many bytes, all that is on the wire.
  size_t recordBytes(size_t body) const { return kFrameHeaderBytes + body + (inClear_ ? 0 : kSealBytes); }
  // The frame in a record that has come whole, decrypted in place: its header and body. Nothing where the
  // other end did not send it as the next one.
  std::optional<std::span<std::byte>> open(std::span<std::byte> record);

 private:
  Seal out_;
  Seal in_;
  bool inClear_;
};

// The length in the first bytes of a record; nothing where no frame is that long.
constexpr size_t kLengthBytes = 4;
std::optional<uint32_t> bodyLengthOf(std::span<const std::byte> first);

// A connection with its keys, before a Link has it.
struct SealedSocket {
  Fd fd;
  FrameSeal seal;
  // For the first frames alone, which fit into a fresh socket's buffer. False: they did not.
  bool send(const FrameHeader& header, std::span<const std::byte> body);
};

}  // namespace weft::control
