// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "providers/common/lane_life.h"
#include "providers/tcp/queue.h"
#include "providers/tcp/spread.h"
#include "providers/tcp/stream.h"
#include "src/base/clock.h"
#include "weft/transport.h"

// A lane: a first connection, and others for large writes that are opened when the first of those is
// posted. Of two ends the one with the lower address dials. A lane is dead at the first failure of any of its
// connections, and retired when the peer has answered the goodbye on each of them (lane_life.h has the
// states). Used by the Queue's thread.
namespace weft::tcp {

class TcpEndpoint : public Endpoint, private StreamHost, private LaneLife::Host {
 public:
  TcpEndpoint(TcpQueue& queue, const LaneAddress& mine);
  ~TcpEndpoint() override;

  std::span<const std::byte> address() const override { return address_; }
  Status connect(std::span<const std::byte> peerAddress) override;
  Result<RemoteMemory> import(std::span<const std::byte> blob) override;
  size_t post(std::span<const Work> works) override;
  void retire() override;

  // From the Queue. Moves on what is not the exchange of data; false when there is nothing more to do.
  bool progress(TimePoint now);
  uint64_t id() const { return mine_.lane; }
  Doorman::Verdict judge(Caller& caller) const;  // of a connection that asks for this lane
  void greeted(const Caller& caller, Fd fd);     // it is

 private:
  struct Read {
    std::byte* into = nullptr;
    uint32_t length = 0;  // of one that is asked for
    bool open = false;
    uint64_t context = 0;
  };

  void reject(const Work& work, int error);
  void put(Stream& stream, const Work& work);
  void putRead(Stream& stream, const Work& work);
  bool withinHost() const { return mine_.ip == peer_.ip; }
  Stream& streamFor(const Work& work);
  void send(Stream& stream);
  void sendFilled();
  void wantStreams(size_t number);
  void expectStreams();
  void dialStreams();
  size_t mostStreams() const;
  [[gnu::cold]] void lookAtFlows();

  Status dialOne(uint8_t number);
  Doorman::Verdict judgePlace(const Caller& caller) const;
  Greeting greetingBy(bool weDial, const Nonce& door, const Hello& hello) const;
  Key256 keyOfGreeting(bool weDial) const;
  bool sealStream(Stream& stream, const Greeting& greeting, bool weDial);
  Stream& addStream(Fd fd);
  bool welcomed(Stream& stream, const FrameHeader& header);
  bool streamsAnnounced(size_t number);
  static std::string refusalText(uint32_t reason);
  void connected();
  void sayGoodbye();
  void closeStream(Stream& stream);
  void closeStreams();
  size_t failWorks(int error, const std::string& why);
  void failWork(uint64_t context, int error, const std::string& why);
  void failRead(uint64_t number, int error, const std::string& why);
  Completion about(CompletionKind kind, int error = 0) { return completionOf(this, kind, error); }

  // LaneLife::Host
  size_t dropOutstanding(LaneState from, int error, const std::string& why) override;
  void startFence(LaneState from) override;
  std::optional<int> fenced(TimePoint now, bool late) override;
  void endFence(bool passed) override;
  void report(const Completion& completion, const std::string& why) override;
  std::string named(const char* what, const std::string& why) const override;
  Endpoint& endpoint() override { return *this; }

  // StreamHost
  KeyTable& regions() override { return queue_.regions(); }
  void notified(uint32_t imm, uint32_t length) override;
  Place place(const FrameHeader& header, bool mayWait) override;
  void messageLanded(uint64_t context, uint32_t length) override;
  void workFinished(Purpose purpose, uint64_t context) override;
  std::byte* readInto(uint32_t number, uint32_t length) override;
  void readFinished(uint32_t number) override;
  bool control(Stream& stream, const FrameHeader& header) override;
  bool doorSaid(Stream& stream, const Nonce& nonce) override;
  void streamFailed(Stream& stream, int error, const std::string& why) override;

  TcpQueue& queue_;
  const LaneAddress mine_;
  const Bytes address_;  // mine_, encoded
  LaneAddress peer_;
  Bytes peerAddress_;  // peer_, encoded
  std::string peerText_;
  LaneLife life_;
  bool dials_ = false;
  bool toSelf_ = false;
  bool fenced_ = true;                        // no work of this end can land any more, or none ever left
  bool asked_ = false;                        // for more streams, or they are coming
  size_t target_ = 1;                         // so many are to be there, as far as they can be had
  TimePoint expecting_{};                     // until when more streams may come
  std::array<bool, kMostStreams> welcome_{};  // of the numbers of streams, those that were let in
  SocketAddress cameFrom_;                    // the first stream that was let in
  std::vector<std::unique_ptr<Stream>>
      streams_;                // the first one first; a lane to ourselves has both its ends
  std::vector<Stream*> bulk_;  // of the others, those that stand
  size_t turn_ = 0;
  uint32_t rounds_ = 0;  // of turns
  Spread spread_;
  std::vector<Read> reads_;
  std::vector<uint32_t> freeReads_;
};

}  // namespace weft::tcp
