// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/address.h"
#include "providers/verbs/memory.h"
#include "tests/fuzz/target.h"

// The opaque bytes a peer's verbs provider sends: lane addresses and memory.
using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto body = fuzz::bytesOf(data, size).subspan(1);
  if (data[0] % 2 == 1) {
    (void)verbs::decodeMemory(body);
    return 0;
  }
  const auto address = verbs::decodeLaneAddress(body);
  if (!address) return 0;
  fuzz::demand(!verbs::addressText(*address).empty(), "an address has a text");
  const auto again = verbs::decodeLaneAddress(verbs::encode(*address));
  fuzz::demand(again && again->pairs == address->pairs && again->gids == address->gids,
               "a lane's address stays the same");
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  verbs::LaneAddress address;
  address.mtu = 5;
  address.pairs = {{17, 1}, {18, 2}};
  address.gids[0][15] = 1;
  return {choose(0, verbs::encode(address)), choose(1, Bytes(24, std::byte{1})),
          choose(1, Bytes(16, std::byte{1}))};
}
