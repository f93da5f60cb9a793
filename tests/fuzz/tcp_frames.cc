// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>
#include <memory>
#include <sys/socket.h>

#include "providers/common/keyed_memory.h"
#include "providers/tcp/stream.h"
#include "tests/fuzz/target.h"

// What comes over a connection of the tcp provider, and the opaque bytes that a peer's end sends before:
// addresses, greetings, memory.
using namespace weft;
using namespace weft::tcp;

namespace {

constexpr size_t kRegion = 512, kGuard = 64;
constexpr uint64_t kAnyKey = 0x6b6b6b6b6b6b6b6b;  // stands for the region's in an input
constexpr uint32_t kReadBytes = 48;

// Memory that frames may name, with bytes around it that none may touch, and a lane that takes everything.
class Lane : public StreamHost {
 public:
  Lane()
      : memory_(KeyedMemory::create(table_, {.address = bytes_.data() + kGuard, .length = kRegion},
                                    kMemoryMagic, nullptr)
                    .take()) {
    bytes_.fill(std::byte{0x5a});
  }

  KeyTable& regions() override { return *table_; }
  // The label is the peer's choice, and so is with it what becomes of the message.
  weft::Place place(const FrameHeader& header, bool) override {
    if (header.number % 4 == 0) return {.refusal = "not this one"};
    if (header.number % 4 == 1) return {};
    return {memory_.get(), header.offset % (2 * kRegion), header.key, nullptr};
  }
  void messageLanded(uint64_t, uint32_t length) override {
    fuzz::demand(length <= kRegion, "a message is no longer than where it landed");
  }
  void notified(uint32_t, uint32_t length) override {
    fuzz::demand(length <= kRegion, "a notification is no longer than what it may name");
  }
  void workFinished(Purpose, uint64_t) override { works_++; }
  std::byte* readInto(uint32_t number, uint32_t length) override {
    return number == 1 && length == kReadBytes && !read_ ? answer_.data() + kGuard : nullptr;
  }
  void readFinished(uint32_t number) override {
    fuzz::demand(number == 1 && !read_, "a read ends once");
    read_ = true;
  }
  bool control(Stream&, const FrameHeader& header) override {
    fuzz::demand(header.length == 0, "a control frame carries nothing");
    return true;
  }
  bool doorSaid(Stream& stream, const Nonce&) override {
    stream.pushHello({});
    return true;
  }
  void streamFailed(Stream& stream, int error, const std::string& why) override {
    fuzz::demand(error != 0 && !why.empty(), "a failure has words");
    stream.close();
  }

  void check() const {
    const auto guarded = [](std::span<const std::byte> bytes) {
      return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0x5a}; });
    };
    fuzz::demand(guarded(std::span(bytes_).first(kGuard)) && guarded(std::span(bytes_).last(kGuard)),
                 "nothing lands outside the region");
    const auto untouched = [](std::byte b) { return b == std::byte{}; };
    fuzz::demand(std::all_of(answer_.begin(), answer_.begin() + kGuard, untouched) &&
                     std::all_of(answer_.end() - kGuard, answer_.end(), untouched),
                 "nothing lands outside what a read is for");
    fuzz::demand(works_ <= 1, "an acknowledgement ends what was posted");
  }
  uint64_t key() const { return static_cast<const KeyedMemory&>(*memory_).key(); }

 private:
  const std::shared_ptr<KeyTable> table_ = std::make_shared<KeyTable>();
  std::array<std::byte, kRegion + 2 * kGuard> bytes_;
  std::array<std::byte, kReadBytes + 2 * kGuard> answer_{};
  std::unique_ptr<Memory> memory_;
  bool read_ = false;
  int works_ = 0;
};

// The region's key is new each time, so that an input cannot have it.
Bytes withKey(std::span<const std::byte> input, uint64_t key) {
  Bytes bytes(input.begin(), input.end());
  for (size_t at = 0; at + sizeof key <= bytes.size(); at++)
    if (std::memcmp(bytes.data() + at, &kAnyKey, sizeof key) == 0)
      std::memcpy(bytes.data() + at, &key, sizeof key);
  return bytes;
}

// One work waits for its acknowledgement.
void postOne(Stream& stream) {
  Outgoing work;
  work.header.kind = FrameKind::write;
  work.header.flags = kWantsAck;
  work.purpose = Purpose::work;
  stream.push(work);
  stream.flush();
}

void receiveFrames(std::span<const std::byte> input, bool dials) {
  if (input.empty()) return;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  Lane lane;
  Stream stream(lane, Fd(ends[0]));
  const Fd peer(ends[1]);
  if (dials)
    stream.awaitDoor();
  else
    stream.standing = true;
  postOne(stream);
  static Stream::Buffer buffer;
  const size_t step = 1 + std::to_integer<size_t>(input[0]);  // how much comes at once
  const Bytes bytes = withKey(input.subspan(1), lane.key());
  for (size_t at = 0; at < bytes.size() && stream.open(); at += step) {
    const size_t length = std::min(step, bytes.size() - at);
    if (::send(peer.get(), bytes.data() + at, length, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
    while (stream.open() && stream.receive(buffer)) lane.check();
  }
  lane.check();
}

void decodeHello(std::span<const std::byte> body) {
  HelloBytes bytes{};
  std::copy_n(body.begin(), std::min(body.size(), bytes.size()), bytes.begin());
  Hello hello;
  if (!decode(bytes, &hello)) return;
  fuzz::demand(hello.stream < kMostStreams && encode(hello) == bytes, "a greeting stays the same");
}

void decodeDoorWords(std::span<const std::byte> body) {
  DoorBytes bytes{};
  std::copy_n(body.begin(), std::min(body.size(), bytes.size()), bytes.begin());
  Nonce nonce{};
  if (decodeDoor(bytes, &nonce))
    fuzz::demand(encodeDoor(nonce) == bytes, "the words of a door stay the same");
}

// A door's words, and a frame behind them.
Bytes doorAndFrame() {
  ByteWriter out;
  FrameHeader header;
  header.kind = FrameKind::bye;
  out.put(uint8_t{40}).raw(encodeDoor({})).raw(std::as_bytes(std::span(&header, 1)));
  return out.take();
}

void decodeAddress(std::span<const std::byte> body) {
  const auto address = decodeLaneAddress(body);
  if (!address) return;
  fuzz::demand(!address->socket().text().empty(), "an address has a text");
  fuzz::demand(std::ranges::equal(encode(*address), body), "a lane's address stays the same");
}

FrameHeader frame(FrameKind kind, uint32_t length) {
  FrameHeader header;
  header.kind = kind;
  header.length = length;
  header.number = 1;
  header.key = kAnyKey;
  return header;
}

Bytes framesOf(std::initializer_list<FrameHeader> headers) {
  ByteWriter out;
  out.put(uint8_t{40});
  for (const FrameHeader& header : headers) {
    out.raw(std::as_bytes(std::span(&header, 1)));
    if (header.carries()) out.raw(Bytes(header.length, std::byte{7}));
  }
  return out.take();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto body = fuzz::bytesOf(data, size).subspan(1);
  switch (data[0] % 10) {
    case 0:
      decodeAddress(body);
      break;
    case 1:
      decodeHello(body);
      break;
    case 2:
      (void)decodeKeyedMemory(body, kMemoryMagic);
      break;
    case 8:
      decodeDoorWords(body);
      break;
    case 9:
      receiveFrames(body, true);
      break;
    default:
      receiveFrames(body, false);
  }
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  LaneAddress address;
  address.port = 4711;
  Hello hello;
  hello.stream = 3;
  FrameHeader acknowledges = frame(FrameKind::ack, 0);
  acknowledges.landed = 1;
  FrameHeader dropped = frame(FrameKind::message, 200);
  FrameHeader placed = frame(FrameKind::message, 300);
  placed.number = 2;
  placed.offset = 100;
  return {choose(0, encode(address)),
          choose(1, encode(hello)),
          choose(2, Bytes(12, std::byte{1})),
          choose(3, framesOf({frame(FrameKind::write, 100), frame(FrameKind::notify, 512)})),
          choose(4, framesOf({acknowledges, frame(FrameKind::readRequest, 64), frame(FrameKind::notify, 0)})),
          choose(5, framesOf({frame(FrameKind::readReply, kReadBytes), frame(FrameKind::bye, 0)})),
          choose(7, framesOf({dropped, placed, frame(FrameKind::notify, 8)})),
          choose(8, encodeDoor({})),
          choose(9, doorAndFrame()),
          choose(6, framesOf({frame(FrameKind::streams, 0), frame(FrameKind::byeAnswer, 0)}))};
}
