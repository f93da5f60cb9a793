// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "src/base/clock.h"

// The record of a run: a hash over everything that happened in the order in which it did, by which two runs
// of one seed are compared, and the last events of each rank in words, for people. Used by one thread.
namespace weft::world {

class Journal {
 public:
  // Part of the hash alone: what happens too often for words.
  void mix(uint64_t value) {
    hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15u;
    hash_ ^= hash_ >> 29;
  }
  void note(TimePoint now, int rank, std::string words);
  // Not part of the hash: log lines, which hold addresses of memory and process numbers.
  void remark(TimePoint now, int rank, std::string words);

  uint64_t hash() const { return hash_; }
  uint64_t events() const { return events_; }
  void keepAll() { kept_ = ~size_t{0}; }
  std::string text() const;   // the last events of each rank
  std::string whole() const;  // all that are kept, in their order

 private:
  struct Event {
    TimePoint when;
    uint64_t number;
    std::string words;
  };

  size_t kept_ = 12;  // of each rank
  uint64_t hash_ = 0x243f6a8885a308d3u;
  uint64_t events_ = 0;
  std::map<int, std::deque<Event>> byRank_;
};

}  // namespace weft::world
