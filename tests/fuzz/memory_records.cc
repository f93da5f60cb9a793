// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>

#include "src/core/wire.h"
#include "tests/fuzz/target.h"

// What a peer writes into our memory, and the 32 bits of its notifications.
using namespace weft;
using namespace weft::core;

namespace {

enum Decoder : uint8_t { note, line, eager, credit, decoders };

template <class Record>
void tryRecord(std::span<const std::byte> bytes) {
  Record record, read;
  alignas(8) std::byte raw[sizeof(Record)] = {};
  std::memcpy(raw, bytes.data(), std::min(bytes.size(), sizeof raw));
  if (readWhole(raw, &read)) return;
  // Sealed, it is believed, and any one bit makes it unbelievable.
  std::memcpy(&record, raw, sizeof record);
  seal(&record);
  std::memcpy(raw, &record, sizeof raw);
  fuzz::demand(readWhole(raw, &read) && std::memcmp(&read, &record, sizeof record) == 0,
               "a sealed record is whole");
  raw[bytes.size() % sizeof raw] ^= std::byte{1};
  fuzz::demand(!readWhole(raw, &read), "a torn record is not");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto body = fuzz::bytesOf(data, size).subspan(1);
  switch (data[0] % decoders) {
    case note: {
      uint32_t imm = 0;
      std::memcpy(&imm, body.data(), std::min(body.size(), sizeof imm));
      const auto decoded = Note::decode(imm);
      if (!decoded) break;
      fuzz::demand(decoded->encode() == imm, "a note stays the same");
      fuzz::demand(decoded->segment < decoded->segments && decoded->segments <= kMaxSegments &&
                       decoded->slot < kMaxSlots && decoded->generation < kGenerations,
                   "a note's numbers are in range");
      break;
    }
    case line:
      tryRecord<Cts>(body);
      break;
    case eager:
      tryRecord<EagerHeader>(body);
      break;
    default:
      tryRecord<CreditRecord>(body);
  }
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  const std::vector<std::byte> zeros(64);
  return {choose(note, zeros), choose(line, zeros), choose(eager, zeros), choose(credit, zeros)};
}
