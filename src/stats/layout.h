// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "src/stats/ticks.h"

// The layout of a process's counters in shared memory, version 5: a Header, then Header::comms lines of type
// CommLine. A file has holes where no line was taken yet. All numbers have the byte order of the machine that
// wrote them. A field only ever changes its meaning together with kVersion. Each line has one writer, whoever
// has entered the engine of its comm.
namespace weft::stats {

inline constexpr uint64_t kMagic = 0x5354'4154'5445'5746;  // "FWETTATS" in memory
inline constexpr uint32_t kVersion = 5;
inline constexpr uint32_t kMostComms = 256;
inline constexpr uint32_t kRecords = 1024;    // of a comm: its last requests
inline constexpr uint32_t kSizeClasses = 32;  // class c: more than 2^(c-1) bytes, up to 2^c; 0: up to 1
inline constexpr uint32_t kBuckets = 192;     // of a histogram
inline constexpr const char* kMemfdName = "weft-stats";
inline constexpr const char* kFileEnding = ".stats";

// A number with one writer. Adding is a load and a store: nobody else writes, so no locked instruction is
// due.
template <class T>
class Cell {
 public:
  T get() const { return value_.load(std::memory_order_relaxed); }
  void set(T value) { value_.store(value, std::memory_order_relaxed); }
  void publish(T value) { value_.store(value, std::memory_order_release); }  // behind all written before
  void add(T more) { set(get() + more); }

 private:
  std::atomic<T> value_;
  static_assert(std::atomic<T>::is_always_lock_free);
};

// A text that is written once, before its line is shown. Ends with a zero.
template <size_t N>
using Text = std::array<char, N>;

// A moment by both clocks: ticks() and CLOCK_REALTIME in nanoseconds.
struct Moment {
  Cell<uint64_t> ticks;
  Cell<uint64_t> realtime;
};

struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t headerBytes;
  uint32_t lineBytes;
  uint32_t comms;
  int64_t pid;
  uint64_t started;  // as weft::Presence
  Text<128> world;
  Text<128> place;
  Text<64> host;
  Text<64> job;  // as jobName()
  Moment begun;
  Moment beat;             // the latest; about each second while the process lives
  Cell<uint32_t> leftOut;  // comms that found no line
};

enum class Way : uint8_t { none, eager, rendezvous, direct, spilled };
inline constexpr size_t kWays = 5;

// `earlier`: the line is no comm's, but has the sums of comms of its device and direction whose lines serve
// others now; its peer is empty, and it has no records.
enum class LineState : uint32_t { unused, live, over, failed, earlier };

// The peer's process, as its control link tells.
enum class PeerState : uint32_t { unknown, answers, silent, gone };

// A request of a comm: a send, or one receive. Valid where `number` is the same before and after it is read
// and is not zero. Times are ticks. A send is posted when it leaves: its CTS is there, or it needs none.
struct Record {
  Cell<uint64_t> number;  // counted from 1; 0: it is being written
  Cell<uint64_t> posted;
  Cell<uint64_t>
      told;  // a receive: its CTS was written. A send: it was refused at first, since then. 0: never
  Cell<uint64_t> first;  // a receive: a part of it was here and others were not; valid with kCameInParts
  Cell<uint64_t> done;   // the last byte: it came, or it has left; 0: it is in flight; written after `bytes`
  Cell<uint32_t> tag;
  Cell<uint32_t> k;
  Cell<uint32_t> bytes;   // once it is done what came, before that the room
  Cell<uint32_t> way;     // Way, and the bits below
  Cell<uint64_t> unused;  // a power of two of bytes is found with fewer instructions
};
static_assert(sizeof(Record) == 64);
inline constexpr uint32_t kTimed = 1 << 8;  // the times are its own, not those of a request shortly before
inline constexpr uint32_t kCameInParts = 1 << 9;
inline constexpr uint64_t kTakesLong = 256
                                       << 10;  // bytes: of smaller ones in one piece only the end is noted

struct SizeClass {
  Cell<uint64_t> messages;
  Cell<uint64_t> bytes;
  Cell<uint64_t> timed;  // of the messages: those with times of their own
  Cell<uint64_t> ticks;  // of these, from post to completion, added up
};

// One-sided operations by way of a comm, in its direction: what left for the peer, or came from it. Their
// messages are among the comm's as well. The writer is whoever has the lock of their team.
struct OneSided {
  Cell<uint64_t> puts, putBytes;  // a sender's: that began here; a receiver's: of which all bytes are here
  Cell<uint64_t> gets, getBytes;  // a sender's: of the peer, whose answers began; a receiver's: as puts
  Cell<uint64_t> signals;         // a sender's: that began here; a receiver's: that were added here

  void countPut(uint64_t bytes, uint64_t signalled) {  // without bytes it is a signal alone, and no put
    puts.add(bytes > 0 ? 1 : 0);
    putBytes.add(bytes);
    signals.add(signalled);
  }
  void countGet(uint64_t bytes, bool whole) {  // bytes of a get; whole: it is counted with them
    gets.add(whole ? 1 : 0);
    getBytes.add(bytes);
  }
};

// A copy of it, or the sum of several.
struct OneSidedSum {
  uint64_t puts = 0, putBytes = 0;
  uint64_t gets = 0, getBytes = 0;
  uint64_t signals = 0;

  OneSidedSum& operator+=(const OneSidedSum& more);
  bool any() const { return puts + gets + signals > 0; }
};

// Each of these numbers, with its name wherever it is written down.
struct OneSidedField {
  const char* name;
  Cell<uint64_t> OneSided::*counted;
  uint64_t OneSidedSum::*sum;
};
inline constexpr OneSidedField kOneSidedFields[] = {
    {"puts", &OneSided::puts, &OneSidedSum::puts},
    {"put_bytes", &OneSided::putBytes, &OneSidedSum::putBytes},
    {"gets", &OneSided::gets, &OneSidedSum::gets},
    {"get_bytes", &OneSided::getBytes, &OneSidedSum::getBytes},
    {"signals", &OneSided::signals, &OneSidedSum::signals},
};

inline OneSidedSum sumOf(const OneSided& counted) {
  OneSidedSum sum;
  for (const OneSidedField& field : kOneSidedFields) sum.*field.sum = (counted.*field.counted).get();
  return sum;
}
inline OneSidedSum& OneSidedSum::operator+=(const OneSidedSum& more) {
  for (const OneSidedField& field : kOneSidedFields) this->*field.sum += more.*field.sum;
  return *this;
}

struct CommLine {
  Cell<uint32_t> sequence;  // odd while the line changes hands
  Cell<uint32_t> state;     // LineState
  Cell<uint32_t> number;
  Cell<uint32_t> sends;  // 1: this end sends
  Text<64> device;
  Text<128> peer;
  Cell<uint32_t> remote;     // the comm's number at the other end; 0: not known yet
  Cell<uint32_t> peerState;  // PeerState, about each second
  Cell<uint64_t> failedAt;   // ticks; 0: it has not
  Text<192> reason;          // of the failure; written before failedAt
  Cell<uint64_t> posted;
  Cell<uint64_t> done;
  Cell<uint64_t> busy;        // ticks with something in flight
  Cell<uint64_t> busySince;   // 0: nothing is
  Cell<uint64_t> waited;      // ticks in which a send wanted to leave and might not
  Cell<uint64_t> waitsSince;  // 0: none does
  Cell<uint64_t> waits;       // how many did
  Cell<uint32_t> waitTag, waitK, waitBytes;
  Cell<uint32_t> lanes, lanesUp;  // to the peer
  Cell<uint32_t> mayIdle;         // 1: that its receives are open does not say that it waits
  Cell<uint64_t> registrations;
  Cell<uint64_t> segmentsAgain, bytesAgain, lanesLeft, lanesRevived;  // of the whole engine
  Cell<uint64_t> checked, corrupt;  // a receiver's: messages whose sums were compared; those that differed
  OneSided oneSided;
  std::array<Cell<uint64_t>, kWays> ways;
  std::array<SizeClass, kSizeClasses> sizes;
  std::array<Cell<uint32_t>, kBuckets> latency;  // post to completion, of timed requests, in ticks
  std::array<Record, kRecords> records;
};

constexpr size_t kFileBytes = sizeof(Header) + kMostComms * sizeof(CommLine);

// Sizes are most often powers of two, and such a class ends with one: a buffer of 64 MiB is no larger than
// that.
constexpr uint32_t sizeClassOf(uint64_t bytes) {
  const auto width = static_cast<uint32_t>(std::bit_width(bytes - static_cast<uint64_t>(bytes != 0)));
  return width < kSizeClasses ? width : kSizeClasses - 1;
}

// Log-linear: each power of two in four equal parts, so a bucket is at most a quarter off.
constexpr uint32_t bucketOf(uint64_t value) {
  if (value < 4) return static_cast<uint32_t>(value);
  const auto power = static_cast<uint32_t>(std::bit_width(value)) - 1;
  const auto part = static_cast<uint32_t>(value >> (power - 2)) & 3;
  const uint32_t bucket = (power - 1) * 4 + part;
  return bucket < kBuckets ? bucket : kBuckets - 1;
}
// The smallest value of a bucket.
constexpr uint64_t bucketBegin(uint32_t bucket) {
  if (bucket < 4) return bucket;
  return uint64_t{4 + bucket % 4} << (bucket / 4 - 1);
}

}  // namespace weft::stats
