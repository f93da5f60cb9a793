// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/rma/exchange.h"
#include "src/rma/window.h"
#include "tests/fuzz/target.h"

// What ranks say to each other about one-sided operations: heads, the ranges that they name, and the
// descriptors of a registration.
using namespace weft;
using namespace weft::rma;

namespace {

enum Decoder : uint8_t { head, exchange, decoders };

void tryRange(const Window& window, uint64_t offset, uint64_t bytes) {
  const uint64_t length = window.ranks[0].length;
  const bool covered = window.covers(0, offset, bytes);
  const bool within = offset <= length && bytes <= length && offset + bytes <= length;
  fuzz::demand(!covered || within, "a range that is covered lies within");
  fuzz::demand(!window.describe(0, offset, bytes).empty(), "and can be described");
}

void tryHead(std::span<const std::byte> body) {
  Head read;
  if (!readHead(body, &read)) return;
  fuzz::demand(read.inlined == body.size() - kHeadBytes, "as many bytes are behind a head as it says");
  fuzz::demand(read.piece == kPieceBytes || read.piece == kStagedPieceBytes, "pieces have one of two sizes");
  Window window;
  for (const uint64_t length : {uint64_t{0}, uint64_t{4096}, ~uint64_t{0}}) {
    window.ranks.assign(1, Descriptor());
    window.ranks[0].length = length;
    tryRange(window, read.offset, read.bytes);
    tryRange(window, read.signalOffset, sizeof(uint64_t));
  }
}

// The ranks that others name in a registration of `ranks`, in any order, twice, or none of them.
void tryExchange(std::span<const std::byte> body) {
  if (body.size() < 2) return;
  const uint32_t ranks = 1 + std::to_integer<uint32_t>(body[0]) % 40;
  const uint32_t self = std::to_integer<uint32_t>(body[1]) % ranks;
  Exchange all(ranks, self);
  std::vector<bool> named(ranks);
  all.begin(Descriptor());
  named[self] = true;
  uint32_t sent = 0;
  for (const std::byte byte : body.subspan(2)) {
    const auto rank = std::to_integer<uint64_t>(byte);
    const bool due = rank < ranks && !named[rank];
    fuzz::demand(all.take(rank, Descriptor()) == due, "a rank is taken once, and only one that there is");
    if (due) named[rank] = true;
    while (const auto round = all.nextRound()) {
      fuzz::demand(round->to < ranks && round->to != self && round->first == self, "a round is for another");
      for (uint32_t i = 0; i < round->count; i++)
        fuzz::demand(named[(round->first + i) % ranks], "and has what was heard");
      sent += round->count;
    }
    fuzz::demand(sent < ranks, "no more is sent than there is");
    if (!all.done()) fuzz::demand(all.missing() < ranks, "who is missing is a rank");
  }
  const bool heard = std::all_of(named.begin(), named.end(), [](bool one) { return one; });
  if (body.size() > 2) fuzz::demand(all.done() == heard, "it is over once all were heard");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto body = fuzz::bytesOf(data, size).subspan(1);
  if (data[0] % decoders == head)
    tryHead(body);
  else
    tryExchange(body);
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  std::vector<Input> all;
  for (const Kind kind : {Kind::put, Kind::get, Kind::exchange, Kind::alarm, Kind::goodbye}) {
    Head made;
    made.kind = kind;
    made.signals = 1;
    made.inlined = kind == Kind::put ? 8 : 0;
    made.bytes = 8;
    made.piece = kind == Kind::get ? kStagedPieceBytes : kPieceBytes;
    std::vector<std::byte> bytes(kHeadBytes + made.inlined);
    std::memcpy(bytes.data(), &made, kHeadBytes);
    all.push_back(choose(head, bytes));
  }
  const std::byte four[] = {std::byte{3}, std::byte{2}, std::byte{3}, std::byte{0}, std::byte{1}};
  all.push_back(choose(exchange, four));
  return all;
}
