// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <unistd.h>

#include "src/base/random.h"
#include "tests/system/local/local_ends.h"

// A peer that has our inbox and keeps no rule: whatever it writes there ends the lane at most, and touches
// nothing.
using namespace weft;
using namespace weft::test;
using namespace weft::local;
using enum CompletionKind;

namespace {

// In the place of the other end: its inbox, and the one of who is tested.
struct RawPeer {
  explicit RawPeer(SeamEnd& end) : nonce(randomNonce()), mine(make(nonce)) {
    const Whereabouts here{::getpid(), mine.fd(), nonce, processNonce()};
    REQUIRE(end.lane->connect(encodeAddress(here)));
    auto found = SharedInbox::find(whereIs(end));
    REQUIRE(found);
    theirs = found.take();
    mine->owner.peer = theirs->label.nonce;
    mine->owner.word.store(Word::willing, std::memory_order_release);
    REQUIRE(pumpUntil({&end}, [&] { return end.count(connected, true) == 1; }));
  }
  static Nonce randomNonce() {
    Nonce made;
    fillRandom(made);
    return made;
  }
  static SharedInbox make(const Nonce& nonce) {
    auto made = SharedInbox::create(nonce);
    REQUIRE(made);
    return made.take();
  }
  Frame& frame() { return theirs->frames[0]; }
  void publish() { frame().number.store(1, std::memory_order_release); }

  const Nonce nonce;
  SharedInbox mine, theirs;
};

uint64_t keyOf(const SeamEnd& end) {
  auto memory = end.lane->import(end.memory->blob());
  REQUIRE(memory);
  return memory->key;
}

}  // namespace

TEST_CASE("local: a frame that is not in order ends the lane and touches nothing") {
  auto transport = local::makeTransport(localConfig());
  SeamEnd end(*transport, 4096);
  RawPeer peer(end);
  const int kind = GENERATE(range(0, 12));
  CAPTURE(kind);
  Frame& frame = peer.frame();
  frame.kind = FrameKind::notify;
  frame.place = local::Place::inlined;
  frame.length = frame.whole = 8;
  frame.key = keyOf(end);
  std::fill(frame.inlined.begin(), frame.inlined.end(), std::byte{0x55});
  if (kind == 0) frame.kind = static_cast<FrameKind>(77);
  if (kind == 1) frame.place = static_cast<local::Place>(9);
  if (kind == 2) frame.length = frame.whole = kInlineBytes + 1;
  if (kind == 3) frame.whole = 4;
  if (kind == 4) frame.length = frame.whole = (uint32_t{1} << 30) + 1;
  if (kind == 5) frame.offset = 4090;
  if (kind == 6) frame.offset = ~uint64_t{0} - 3;
  if (kind == 7) frame.key ^= uint64_t{1} << 50;
  if (kind == 8) frame.consumed = 3;  // frames that were never put
  if (kind == 9) frame.place = local::Place::none;
  if (kind == 10) frame.kind = FrameKind::read, frame.length = kReplyBytes + 1;
  if (kind == 11) frame.place = local::Place::ring, frame.source = kRingBytes - 4;
  peer.publish();
  REQUIRE(pumpUntil({&end}, [&] { return end.count(broken, false) == 1; }));
  CHECK_FALSE(end.words.empty());
  CHECK(end.count(notified) == 0);
  CHECK(std::count(end.bytes.begin(), end.bytes.end(), 0) == 4096);
  CHECK(peer.theirs->owner.error.load() != 0);
}

TEST_CASE("local: a good one in the same way lands") {
  auto transport = local::makeTransport(localConfig());
  SeamEnd end(*transport, 4096);
  RawPeer peer(end);
  Frame& frame = peer.frame();
  frame.kind = FrameKind::notify;
  frame.place = local::Place::inlined;
  frame.length = frame.whole = 8;
  frame.imm = 9;
  frame.key = keyOf(end);
  frame.offset = 100;
  std::fill(frame.inlined.begin(), frame.inlined.end(), std::byte{0x55});
  peer.publish();
  REQUIRE(pumpUntil({&end}, [&] { return end.count(notified) == 1; }));
  CHECK(end.first(notified)->imm == 9);
  CHECK(std::count(end.bytes.begin(), end.bytes.end(), 0x55) == 8);
  CHECK(end.bytes[100] == 0x55);
}

TEST_CASE("local: a peer that says it took what was never put is not believed") {
  auto transport = local::makeTransport(localConfig());
  SeamEnd end(*transport, 4096);
  RawPeer peer(end);
  end.remote = {0, 1};
  REQUIRE(end.post(end.work(Opcode::write, 0, 0, 8)));
  peer.mine->owner.consumed.store(77, std::memory_order_release);
  pump({&end}, 1000);
  CHECK(end.count(sent) == 0);
  peer.mine->owner.consumed.store(1, std::memory_order_release);
  CHECK(pumpUntil({&end}, [&] { return end.count(sent, true) == 1; }));
}

TEST_CASE("local: an answer of another length to a read ends the lane") {
  auto transport = local::makeTransport(localConfig());
  SeamEnd end(*transport, 4096);
  RawPeer peer(end);
  end.remote = {0, 1};
  REQUIRE(end.post(end.work(Opcode::read, 0, 0, 8)));
  peer.theirs->reply.length.store(4096, std::memory_order_release);
  REQUIRE(pumpUntil({&end}, [&] { return end.count(sent, false) == 1; }));
  CHECK(std::count(end.bytes.begin(), end.bytes.end(), 0) == 4096);
}

TEST_CASE("local: a peer that declined as we came to stand ends the lane") {
  auto transport = local::makeTransport(localConfig());
  SeamEnd end(*transport, 4096);
  RawPeer peer(end);
  peer.mine->owner.word.store(Word::declined, std::memory_order_release);
  REQUIRE(pumpUntil({&end}, [&] { return end.count(broken, false) == 1; }));
  CHECK(contains(end.words, "gave up connecting"));
}
