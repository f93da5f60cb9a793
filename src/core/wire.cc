// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/wire.h"

#include <atomic>
#include <cstring>

namespace weft::core {

namespace {

// Not cryptographic: it tells a whole record from a torn or stale one. Multiply-xorshift per word, as in
// SplitMix64.
uint64_t mix(const uint64_t* words, size_t count) {
  uint64_t sum = 0x9e3779b97f4a7c15u + count;
  for (size_t i = 0; i < count; i++) {
    sum = (sum ^ words[i]) * 0xbf58476d1ce4e5b9u;
    sum ^= sum >> 29;
  }
  return sum;
}

template <class T>
uint64_t checksumOf(const T& record) {
  uint64_t words[sizeof(T) / 8];
  std::memcpy(words, &record, sizeof words);
  return mix(words, sizeof(T) / 8 - 1);
}

template <class T>
void sealRecord(T* record) {
  record->checksum = checksumOf(*record);
}

// The writer is a NIC or another process: volatile keeps the compiler from reading twice, the fence keeps
// later reads (of an eager payload) behind the check.
template <class T>
bool readRecord(const void* from, T* out) {
  const auto* source = static_cast<const volatile uint64_t*>(from);
  uint64_t words[sizeof(T) / 8];
  for (size_t i = 0; i < sizeof(T) / 8; i++) words[i] = source[i];
  std::atomic_thread_fence(std::memory_order_acquire);
  std::memcpy(out, words, sizeof words);
  return words[sizeof(T) / 8 - 1] == mix(words, sizeof(T) / 8 - 1);
}

}  // namespace

void seal(CtsLine* line) {
  sealRecord(line);
}
void seal(EagerHeader* header) {
  sealRecord(header);
}
void seal(CreditLine* line) {
  sealRecord(line);
}

bool readWhole(const void* from, CtsLine* out) {
  return readRecord(from, out);
}
bool readWhole(const void* from, EagerHeader* out) {
  return readRecord(from, out);
}
bool readWhole(const void* from, CreditLine* out) {
  return readRecord(from, out);
}

}  // namespace weft::core
