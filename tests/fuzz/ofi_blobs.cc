// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/address.h"
#include "providers/ofi/memory.h"
#include "tests/fuzz/target.h"

// The opaque bytes a peer's ofi provider sends: lane addresses and memory.
using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto body = fuzz::bytesOf(data, size).subspan(1);
  if (data[0] % 2 == 1) {
    (void)ofi::decodeMemory(body);
    return 0;
  }
  const auto address = ofi::decodeLaneAddress(body);
  if (!address) return 0;
  const auto again = ofi::decodeLaneAddress(ofi::encode(*address));
  fuzz::demand(again && again->names == address->names && again->helloKey == address->helloKey,
               "a lane's address stays the same");
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  ofi::LaneAddress address;
  address.names = {Bytes(16, std::byte{2}), Bytes(16, std::byte{3})};
  address.helloBase = 4096;
  address.helloKey = 7;
  return {choose(0, ofi::encode(address)), choose(1, Bytes(24, std::byte{1})),
          choose(1, Bytes(16, std::byte{1}))};
}
