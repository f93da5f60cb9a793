// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <vector>

#include "tools/netdriver/channel.h"

// The two ends of one pair of ranks, connected both ways: small messages to and fro, and a stream in one
// direction. Both ranks call the matching function at the same time. Contents are checked. Used by one
// thread.
namespace weft::perf {

// The work of a rank's processor for what goes to a peer and comes from there.
struct EndCosts {
  double sendUs = 0;        // of the call that sends a small message; 0: not measured, as all below
  double receiveUs = 0;     // of the pass that finds one
  double testUs = 0;        // of a pass that finds nothing
  double lookUs = 0;        // likewise, and the yield behind it
  double stepUs = 0;        // one way of a small message between two processors
  double sharedStepUs = 0;  // likewise on one that both ends share
  struct Rates {
    double sendGBps = 0;
    double receiveGBps = 0;
  };
  Rates near;  // of bytes that the caches hold
  Rates far;   // of those that they do not

  void better(const EndCosts& other);  // the smaller times and larger rates of both
};

class PairProbe {
 public:
  // The ends of a connection each way, and room for messages of so many bytes.
  struct Ends {
    netdriver::Comm to;
    netdriver::Comm from;
    int rank = 0;
    int peer = 0;
    size_t largest = kStreamMessage;
  };
  static constexpr size_t kStreamMessage = size_t{128} << 10;
  static constexpr size_t kCostMessage = size_t{1} << 20;  // as large as those of weft perf's rings

  static Result<PairProbe> create(Ends ends, Milliseconds stall);

  // Exchanges small messages, the caller with `begins` first. The time, in microseconds, from a
  // message's stamp by the sender's clock to its arrival here by ours, that one in twenty stays below.
  Result<double> latency(bool begins);

  // Streams `bytes` to the peer, or from it, several times; the receiver gets GB/s over the time between the
  // first and the last message, of the best stream: other work on the machine only makes some slower, a slow
  // path all. The sender gets 0.
  Result<double> bandwidth(bool sends, uint64_t bytes);

  // Small messages, and streams of messages, with a look at the clock before and after each pass: the time in
  // passes, without what those take that find nothing. Small messages once more on two processors, and on
  // one.
  Result<EndCosts> costs(bool begins);

 private:
  struct Packet;
  // A stream whose messages have their bytes out of so much memory, and into as much at the other end.
  struct Stream {
    uint64_t messages = 0;
    size_t bytes = 0;  // of a message
    size_t memory = 0;
  };
  static const Stream kNear, kFar;

  // The passes of a measurement; in nanoseconds.
  struct Passes {
    enum class Clock : uint8_t { wall, processor };
    Clock clock = Clock::wall;
    std::vector<double> looks;      // in vain
    std::vector<double> withYield;  // likewise, until the next one
    std::vector<double> finds;
    std::vector<double> sends;
    double total = 0;  // of all but the yields
    uint64_t inVain = 0;

    double movingCost(const Stream& of, double messageUs) const;  // of a byte, without the messages' own time
  };

  Status send(size_t bytes, uint64_t number);
  // Until the oldest message is there; the time is when it was seen.
  Result<int64_t> receive(size_t bytes, uint64_t number, int64_t* stamp);
  template <class F>
  Status until(F&& done);
  Result<double> stream(bool sends, uint64_t messages, size_t bytes);
  int64_t stamp() const;
  Status pass(bool* moved);
  Result<std::vector<double>> pings(bool begins);  // the times, in microseconds
  Result<std::vector<double>> pingsOn(size_t processor, bool begins);
  std::byte* nextData(size_t bytes);
  Status smallCosts(bool begins, EndCosts* costs);
  Result<EndCosts::Rates> rates(bool begins, const Stream& of, const EndCosts& small);
  template <class F>
  Result<double> costOf(const Stream& of, double messageUs, F&& run);
  Status exchange(const Stream& of);

  std::unique_ptr<netdriver::SendChannel> send_;
  std::unique_ptr<netdriver::RecvChannel> receive_;
  Milliseconds stall_{0};
  // Where messages of costs() come from and go to, as an operation's do, outside the passes: what was copied
  // just before is in other caches than what lay still.
  std::vector<std::byte> data_;
  size_t at_ = 0;
  Passes* passes_ = nullptr;  // where they are noted, during costs()
};

}  // namespace weft::perf
