// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/control/contract.h"

// Sums of messages' bytes, which go from sender to receiver by the control link, beside the bytes: so they
// hold for every way that a message takes, over every fabric. Which messages have one both ends know by
// themselves, from the message's number. Pure; each object is owned by its comm and used inside its engine.
namespace weft::core {

enum class Checking : uint8_t { off, sample, all };

// Nothing: the text is none of these.
std::optional<Checking> parseChecking(const std::string& text);

inline constexpr const char* kCheckingField = "WEFT_CHECKSUM";  // of the fingerprint
// The lesser of both ends' wishes; a peer that does not say it checks nothing.
Checking agreedChecking(Checking ours, const control::Fingerprint& theirs);

// One in 1,024 is that whose number in its thousand is its thousand's number: NCCL goes round its buffers in
// powers of two, so the same distance each time would look at one of them alone.
class SumRule {
 public:
  explicit SumRule(Checking checking = Checking::off)
      : mask_(checking == Checking::sample ? (1u << kSampleBits) - 1 : 0),
        match_(checking == Checking::off ? 1 : 0) {}
  bool concerns(uint32_t k) const { return ((k ^ k >> kSampleBits) & mask_) == match_; }
  bool concernsAll() const { return mask_ == 0 && match_ == 0; }
  bool concernsSome() const { return match_ == 0; }

  static constexpr uint32_t kSampleBits = 10;

 private:
  uint32_t mask_;
  uint32_t match_;
};

constexpr size_t kMostParts = 16;
constexpr size_t kMostSummedSegments = 16;
constexpr uint64_t kMostSummedBytes = uint64_t{1} << 30;  // as large as a message may be

// Parts of one length, but for the last, so that an error can say where it is.
constexpr uint64_t partBytes(uint64_t bytes) {
  constexpr uint64_t kLeast = 4096;
  return bytes <= kLeast * kMostParts ? kLeast : ((bytes + kMostParts - 1) / kMostParts + 63) / 64 * 64;
}
constexpr size_t partsOf(uint64_t bytes) {
  return static_cast<size_t>((bytes + partBytes(bytes) - 1) / partBytes(bytes));
}

struct PayloadSum {
  struct Segment {
    uint8_t lane = 0;  // kNoLane: not known
    uint32_t bytes = 0;
  };
  uint32_t tag = 0;
  uint32_t k = 0;
  uint64_t bytes = 0;
  uint8_t segmentCount = 0;  // a sender's: as they left first, side by side
  std::array<Segment, kMostSummedSegments> segments{};
  std::array<uint32_t, kMostParts> parts{};

  static PayloadSum of(uint32_t tag, uint32_t k, std::span<const std::byte> payload);
};

// The part of a message that is not what was sent.
struct Corruption {
  PayloadSum sent;
  uint64_t got = 0;  // bytes
  uint64_t begin = 0, end = 0;
  size_t parts = 0;  // of them differ

  std::vector<uint8_t> lanes() const;  // that carried the bytes between begin and end
};

// A sender's, until they are told. No allocation once there is room.
class SumsToTell {
 public:
  void makeRoom() { sums_.reserve(kMost); }
  bool full() const { return sums_.size() == kMost; }
  bool empty() const { return sums_.empty(); }
  void add(const PayloadSum& sum) { sums_.push_back(sum); }
  const std::vector<PayloadSum>& sums() const { return sums_; }
  void clear() { sums_.clear(); }

  static constexpr size_t kMost = 8;

 private:
  std::vector<PayloadSum> sums_;
};

// A receiver's: of each message, whichever of both sums comes first waits for the other one. Of a message
// whose sender could not read its bytes no sum comes, so each message has one place, which those that come
// much later have as well. No allocation once there is room.
class SumBook {
 public:
  explicit SumBook(const SumRule& rule)
      : places_(rule.concernsAll() ? 4096 : 8), shift_(rule.concernsAll() ? 0 : SumRule::kSampleBits) {}

  void makeRoom() { waiting_.resize(places_); }
  enum class Found : uint8_t { waits, same, differs };
  Found received(const PayloadSum& ours, Corruption* found) { return add(ours, true, found); }
  Found told(const PayloadSum& theirs, Corruption* found) { return add(theirs, false, found); }

 private:
  struct Waiting {
    PayloadSum sum;
    bool ours = false;
    bool used = false;
  };
  Found add(const PayloadSum& sum, bool ours, Corruption* found);

  std::vector<Waiting> waiting_;
  size_t places_;
  uint32_t shift_;
};

}  // namespace weft::core
