// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <string>
#include <sys/uio.h>
#include <vector>

#include "providers/common/key_table.h"
#include "providers/tcp/ring.h"
#include "providers/tcp/sealed_channel.h"
#include "providers/tcp/wire.h"
#include "src/base/fd.h"
#include "weft/transport.h"

// A connection of a lane: frames go out in the order they were pushed, and come in straight into the memory
// they name. Small frames are read many at a time through the Queue's buffer; of a large one only what came
// with its header is copied twice. Used by the Queue's thread.
namespace weft::tcp {

class Stream;

enum class Purpose : uint8_t {
  work,        // a write that wants its completion
  unsignaled,  // a write that wants none
  request,     // of a read, which ends with its reply
  reply,       // to the peer's read
  control,
  hello,
};

// A frame to send. `data` is borrowed until it is sent; a reply's is looked up by key each time.
struct Outgoing {
  FrameHeader header;
  const std::byte* data = nullptr;
  uint64_t context = 0;
  Purpose purpose = Purpose::control;

  bool wantsAck() const { return (header.flags & kWantsAck) != 0; }
};

// The calls of a stream to the lane it belongs to, from within flush and receive. Where an answer is false
// the stream is over and must not be touched again in that call.
class StreamHost {
 public:
  virtual ~StreamHost() = default;
  virtual KeyTable& regions() = 0;
  virtual void notified(uint32_t imm, uint32_t length) = 0;
  // Where a message goes. `mayWait` as the seam's Placer has it.
  virtual weft::Place place(const FrameHeader& header, bool mayWait) = 0;
  virtual void messageLanded(uint64_t context, uint32_t length) = 0;
  virtual void workFinished(Purpose purpose, uint64_t context) = 0;   // sent, or landed if that was asked for
  virtual std::byte* readInto(uint32_t number, uint32_t length) = 0;  // null: there is no such read
  virtual void readFinished(uint32_t number) = 0;
  virtual bool control(Stream& stream, const FrameHeader& header) = 0;
  // The words of the door came on a stream that we dialled.
  virtual bool doorSaid(Stream& stream, const Nonce& nonce) = 0;
  virtual void streamFailed(Stream& stream, int error, const std::string& why) = 0;
};

class Stream {
 public:
  // The Queue's buffer that frames are read through.
  static constexpr size_t kBufferBytes = 16 << 10;
  using Buffer = std::array<std::byte, kBufferBytes>;
  static constexpr uint32_t kBulkBytes = 32 << 10;
  // For so many polls in a row a message may wait for its place, and all that is behind it. A connection that
  // says nothing for longer is read seldom (watch.h).
  static constexpr int kMostAsks = 48;
  // So much is read together with the header of a large frame, of its neighbour.
  static constexpr size_t kAheadOfLarge = 256;

  Stream(StreamHost& host, Fd fd) : host_(host), fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  bool open() const { return static_cast<bool>(fd_); }
  void close();
  void cut();  // likewise, and what the kernel still holds is not sent

  void push(const Outgoing& outgoing) { out_.push(outgoing); }
  void pushControl(FrameKind kind, uint32_t number = 0);
  void pushWelcome(const Tag128& tag);
  // Of an end that dialled: it waits for the words of the door, and then says its hello.
  void awaitDoor() { awaitsDoor_ = true; }
  void pushHello(const Hello& hello);
  // What goes out is sealed from here on, and of an end that dialled from behind its hello on.
  void sealBy(std::unique_ptr<SealedChannel> channel);
  // There is more to flush.
  bool blocked() const { return (!out_.empty() || holdsSealed()) && sendError_ == 0; }
  // Something is to be read for, beside what the peer may send: an acknowledgement is owed, or the last
  // words, or what was read is not taken.
  bool hasPending() const {
    return landed_ != acknowledged_ || sendError_ != 0 || !out_.empty() || holdsSealed() || lacked_;
  }

  // Sends what the kernel takes.
  void flush();
  // Reads what is there, a bounded amount. False when there was nothing, or it is over.
  bool receive(Buffer& buffer);

  // Takes back what has not begun to leave, and forgets what waits for an acknowledgement.
  template <class Visit>
  void dropUnsent(Visit visit);
  template <class Visit>
  void dropAll(Visit visit);

  // The lane's notes about it.
  uint8_t lanesNumber = 0;  // among the lane's streams, as the end that dialled says it
  Nonce door{};             // with the hello, what was said until it stood
  Hello hello;
  bool standing = false;  // both ends know each other
  bool fenced = false;    // nothing of ours is on its way any more
  bool peerLeft = false;  // its bye came, or the orderly end of the connection
  bool filled = false;    // what was posted now has not been handed to the kernel yet
  bool sending = false;   // the Queue flushes it

  // Where the Queue keeps it (watch.h), and how many reads in a row found nothing.
  enum class Place : uint8_t { nowhere, hot, warm, cold };
  Place place = Place::nowhere;
  uint32_t emptyReads = 0;

 private:
  struct Awaiting {
    uint64_t context = 0;
    Purpose purpose = Purpose::work;
  };
  struct Landing {
    KeyTable::Use pin;
    std::byte* at = nullptr;
  };
  struct Gathered;
  struct Unused;

  bool gather(Gathered* into);
  bool gatherReply(const Outgoing& outgoing, Gathered* into, size_t slot);
  void took(size_t bytes);
  void left(const Outgoing& outgoing);
  static size_t headerBytes(const Outgoing& outgoing) {
    return outgoing.purpose == Purpose::hello ? 0 : kHeaderBytes;
  }
  static size_t dataBytes(const Outgoing& outgoing);

  bool hearDoor();
  bool holdsSealed() const { return channel_ && channel_->pending(); }
  ssize_t sendParts(const iovec* parts, size_t count);
  ssize_t receiveParts(iovec* parts, size_t count);
  ssize_t readSome(Buffer& buffer, size_t* inPlace, size_t* asked);
  bool ended(ssize_t result);
  bool parse(std::span<const std::byte> bytes);
  bool take(std::span<const std::byte>* bytes);
  bool goOn();
  bool begin(size_t here);
  bool enter();
  bool waits() const { return asks_ > 0; }
  bool resume();
  void learn(bool inTime);
  bool locate(Landing* landing);
  bool placeMessage(bool mayWait);
  void finish();
  bool acknowledged(uint32_t landed);
  bool answerRead();
  bool refuse(Refused reason, const char* why);
  bool fail(int error, const std::string& why);

  StreamHost& host_;
  Fd fd_;

  std::unique_ptr<SealedChannel> channel_;      // null: bytes go as they are
  std::unique_ptr<SealedChannel> nextChannel_;  // from behind the hello on
  bool awaitsDoor_ = false;
  size_t haveDoor_ = 0;
  DoorBytes doorBytes_{};
  HelloBytes helloBytes_{};

  Ring<Outgoing> out_;
  Ring<Awaiting> awaiting_;
  size_t sentOfFirst_ = 0;
  int sendError_ = 0;
  uint32_t acked_ = 0;  // how many of ours the peer said have landed

  FrameHeader header_;   // of the frame that is arriving
  uint64_t placed_ = 0;  // of a message: what its place is called; 0: nobody wants to hear
  // A message without a place yet: how often that was asked, how often it will be before the message is read
  // without, and what was read of it.
  int asks_ = 0;
  int patience_ = kMostAsks;
  std::array<std::byte, kAheadOfLarge> held_;
  size_t heldBytes_ = 0;
  bool lacked_ = false;          // memory ran out while something was taken, which was not done then
  std::vector<std::byte> rest_;  // what had been read behind that
  uint32_t haveHeader_ = 0;
  uint32_t done_ = 0;  // of its bytes
  bool inFrame_ = false;
  uint32_t landed_ = 0;        // how many of the peer's that asked for it
  uint32_t acknowledged_ = 0;  // how many of them it knows of
  size_t ahead_ = kBufferBytes;
};

template <class Visit>
void Stream::dropUnsent(Visit visit) {
  size_t kept = sentOfFirst_ > 0 ? 1 : 0;
  out_.keepIf([&](const Outgoing& outgoing) {
    if (kept > 0) {
      kept--;
      return true;
    }
    if (outgoing.purpose > Purpose::request) return true;
    visit(outgoing.purpose, outgoing.context);
    return false;
  });
}

template <class Visit>
void Stream::dropAll(Visit visit) {
  for (size_t i = 0; i < awaiting_.size(); i++) visit(awaiting_[i].purpose, awaiting_[i].context);
  for (size_t i = 0; i < out_.size(); i++) visit(out_[i].purpose, out_[i].context);
  awaiting_.clear();
  out_.clear();
  sentOfFirst_ = 0;
}

}  // namespace weft::tcp
