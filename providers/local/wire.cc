// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/wire.h"

// The bytes of a lane's address.
namespace weft::local {

namespace {

constexpr uint8_t kAddressVersion = 2;

}  // namespace

Bytes encodeAddress(const Whereabouts& where) {
  ByteWriter out;
  out.put(kAddressVersion)
      .put(where.pid)
      .put(where.fd)
      .raw(where.nonce)
      .raw(where.process)
      .blob(where.gpuSocket);
  return out.take();
}

Result<Whereabouts> decodeAddress(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Whereabouts where;
  const auto version = in.get<uint8_t>();
  where.pid = in.get<int32_t>();
  where.fd = in.get<int32_t>();
  in.fill(where.nonce);
  in.fill(where.process);
  const auto socket = in.blob();
  where.gpuSocket.assign(socket.begin(), socket.end());
  if (version == kAddressVersion && in.done() && where.pid > 0 && where.fd >= 0) return where;
  return Error(Code::invalidArgument, "connecting a lane",
               "the peer's lane address is damaged or from another version of weft");
}

}  // namespace weft::local
