// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/checksums.h"

#include <algorithm>
#include <utility>

#include "src/base/crc32c.h"

namespace weft::core {

std::optional<Checking> parseChecking(const std::string& text) {
  if (text == "off") return Checking::off;
  if (text == "sample") return Checking::sample;
  if (text == "all") return Checking::all;
  return std::nullopt;
}

Checking agreedChecking(Checking ours, const control::Fingerprint& theirs) {
  for (const control::FingerprintField& field : theirs)
    if (field.name == kCheckingField)
      return std::min(ours, parseChecking(field.value).value_or(Checking::off));
  return Checking::off;
}

PayloadSum PayloadSum::of(uint32_t tag, uint32_t k, std::span<const std::byte> payload) {
  PayloadSum sum;
  sum.tag = tag;
  sum.k = k;
  sum.bytes = payload.size();
  crc32cOfParts(payload, partBytes(payload.size()), sum.parts);
  return sum;
}

std::vector<uint8_t> Corruption::lanes() const {
  std::vector<uint8_t> lanes;
  uint64_t at = 0;
  for (const PayloadSum::Segment& segment : std::span(sent.segments).first(sent.segmentCount)) {
    const bool touched = at < end && at + segment.bytes > begin;
    if (touched && std::find(lanes.begin(), lanes.end(), segment.lane) == lanes.end())
      lanes.push_back(segment.lane);
    at += segment.bytes;
  }
  return lanes;
}

namespace {

// Nothing: they are the same.
std::optional<Corruption> compare(const PayloadSum& received, const PayloadSum& sent) {
  Corruption found;
  found.got = received.bytes;
  const uint64_t part = partBytes(sent.bytes);
  for (size_t i = 0; i < partsOf(sent.bytes); i++) {
    if (received.bytes == sent.bytes && received.parts[i] == sent.parts[i]) continue;
    if (found.parts++ == 0) found.begin = i * part;
    found.end = std::min<uint64_t>((i + 1) * part, sent.bytes);
  }
  if (found.parts == 0) return std::nullopt;
  found.sent = sent;
  return found;
}

}  // namespace

SumBook::Found SumBook::add(const PayloadSum& sum, bool ours, Corruption* found) {
  Waiting& place = waiting_[((sum.k >> shift_) + sum.tag) % places_];
  const bool same = place.used && place.sum.tag == sum.tag && place.sum.k == sum.k;
  if (!same || place.ours == ours) {
    place = {sum, ours, true};
    return Found::waits;
  }
  place.used = false;
  const auto corruption = ours ? compare(sum, place.sum) : compare(place.sum, sum);
  if (!corruption) return Found::same;
  *found = *corruption;
  return Found::differs;
}

}  // namespace weft::core
