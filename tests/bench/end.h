// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// One process's end of a way to move messages to one other process: libfabric itself, weft's seam to it, or a
// whole network plugin. All are driven by the same measures, so that what differs is the way alone. The first
// process has `outgoing` channels to the second, which has one back. Lengths in bytes. One thread; errors end
// the process with a message, as there is nothing to measure then.
namespace weft::bench {

constexpr size_t kAreaBytes = size_t{16} << 20;  // per channel, the messages of a window lie in it in turn
constexpr size_t kAreas = 4;                     // more channels than this share them
constexpr size_t kMostInFlight = 64;             // a power of two

struct Shape {
  size_t outgoing = 1;
  size_t incoming = 1;
};

class End {
 public:
  struct Counters {
    uint64_t started = 0;   // messages handed over
    uint64_t finished = 0;  // of these, those whose buffer is ours again, or whose data is here
    // Incoming only:
    uint64_t taken = 0;     // how many the measure has counted; more may be here already
    uint64_t expected = 0;  // how many will come
    size_t bytes = 0;       // of each at most
  };

  explicit End(const Shape& shape) : out_(shape.outgoing), in_(shape.incoming) {}
  virtual ~End() = default;
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  // Starts a message; false: not now, poll and try again.
  virtual bool send(size_t channel, size_t bytes) = 0;
  // What moves everything on: posts what is expected, and looks for what is done.
  virtual void poll() = 0;
  virtual std::string describe() const = 0;

  // Which channels are in use from now on, and how many messages each may have in flight.
  void use(size_t channels, size_t window) {
    active_ = channels;
    window_ = window;
  }
  void expect(size_t channel, size_t bytes, uint64_t more) {
    in_[channel].bytes = bytes;
    in_[channel].expected += more;
  }
  // Waits until `count` more messages than ever before are here.
  void receive(size_t channel, uint64_t count) {
    in_[channel].taken += count;
    while (in_[channel].finished < in_[channel].taken) poll();
  }
  const Counters& out(size_t channel) const { return out_[channel]; }
  bool hasRoom(size_t channel) const { return out_[channel].started - out_[channel].finished < window_; }
  size_t outgoing() const { return out_.size(); }
  size_t incoming() const { return in_.size(); }

 protected:
  // Where message number `index` of a channel lies in the channel's area: no two on one cache line.
  static size_t placeOf(uint64_t index, size_t bytes) {
    const size_t stride = (bytes + 127) / 128 * 128;
    return static_cast<size_t>(index % kMostInFlight) * stride % kAreaBytes;
  }
  static size_t areasFor(size_t channels) { return channels < kAreas ? channels : kAreas; }
  static size_t areaOf(size_t channel) { return channel % kAreas * kAreaBytes; }

  std::vector<Counters> out_, in_;
  size_t active_ = 1;
  size_t window_ = 1;
};

}  // namespace weft::bench
