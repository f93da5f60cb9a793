// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/join_link.h"

#include <future>
#include <sys/socket.h>

#include "src/base/log.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"

// A rank and a daemon that meet over a connection, without the rest of both.
using namespace weft;
using namespace weft::coll;

namespace {

const std::string kSecret = "open sesame, says the rank";

Patience soon() {
  return {Clock::system(), Milliseconds(10'000 * test::patience())};
}

Bytes bytesOf(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

// The other end of a rank's connection, in the hands of the test.
class Meeting {
 public:
  explicit Meeting(const Key256& key) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    there_.reset(ends[1]);
    rank_ = std::async(std::launch::async, [key, end = ends[0]] { return meetDaemon(Fd(end), key, soon()); });
    opening_ = take(kOpeningBytes);
  }
  ~Meeting() {
    there_.reset();  // the rank's wait ends
  }

  const Bytes& opening() const { return opening_; }
  Bytes take(size_t bytes) const {
    ExactReader reader;
    reader.expect(bytes);
    REQUIRE(receiveAll(there_.get(), reader, soon().deadline()));
    return Bytes(reader.bytes().begin(), reader.bytes().end());
  }
  void give(const Bytes& bytes) const { REQUIRE(sendAll(there_.get(), bytes, soon().deadline())); }
  Fd& end() { return there_; }
  Result<JoinLink> rank() { return rank_.get(); }
  std::string refusalOfRank() {
    const auto met = rank();
    REQUIRE_FALSE(met);
    return met.error().message();
  }

 private:
  Fd there_;
  std::future<Result<JoinLink>> rank_;
  Bytes opening_;
};

Bytes ofVersion(Bytes start, uint8_t version) {
  start[kLengthBytes + sizeof kMagic] = std::byte{version};
  return start;
}

bool names(const std::string& words, const std::string& what) {
  return words.find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("a rank and a daemon with one secret meet, and say everything sealed") {
  const Key256 key = joinKeyOf({}, kSecret);
  Meeting meeting(key);
  auto met = meetRank(meeting.opening(), key);
  REQUIRE(met);
  meeting.give(met->answer);
  auto rank = meeting.rank();
  REQUIRE(rank);
  JoinLink daemon(std::move(meeting.end()), met->seal);
  for (const size_t bytes : {size_t{0}, size_t{1}, kMessageBytes}) {
    const Bytes message(bytes, std::byte{7});
    REQUIRE(rank->say(message, soon()));
    CHECK(*daemon.hear(soon()) == message);
    REQUIRE(daemon.say(message, soon()));
    CHECK(*rank->hear(soon()) == message);
  }
  REQUIRE(daemon.say(Bytes(kMessageBytes + 1), soon()));
  CHECK_FALSE(rank->hear(soon()));
}

TEST_CASE("a sealed message opens once, whole, in order, and nowhere else") {
  NoiseKeys here, there;
  here.send.fill(std::byte{1});
  there.receive = here.send;
  const auto rest = [](const Bytes& record) { return std::span(record).subspan(kLengthBytes); };
  JoinSeal sender(here);
  const Bytes first = sender.close(bytesOf("first")), second = sender.close(bytesOf("second"));
  JoinSeal receiver(there);
  CHECK_FALSE(receiver.open(rest(second)));
  for (size_t at = kLengthBytes; at < first.size(); at++) {
    Bytes changed = first;
    changed[at] ^= std::byte{0x10};
    CHECK_FALSE(receiver.open(rest(changed)));
    CHECK_FALSE(receiver.open(rest(Bytes(first.begin(), first.begin() + static_cast<ptrdiff_t>(at)))));
  }
  CHECK(receiver.open(rest(first)) == bytesOf("first"));
  CHECK_FALSE(receiver.open(rest(first)));
  CHECK(receiver.open(rest(second)) == bytesOf("second"));
}

TEST_CASE("a rank whose secret, or whose job's secret, is another one is refused and told the settings") {
  Protection job;
  job.jobSecret.emplace().fill(std::byte{1});
  for (const Key256& other : {joinKeyOf({}, "open barley, says the rank"), joinKeyOf(job, kSecret)}) {
    Meeting meeting(other);
    const auto met = meetRank(meeting.opening(), joinKeyOf({}, kSecret));
    REQUIRE_FALSE(met);
    CHECK(names(met.error().message(), "WEFT_AGGD_SECRET"));
    meeting.give(refusal());
    const auto rank = meeting.rank();
    REQUIRE_FALSE(rank);
    CHECK(rank.error().code() == Code::config);
    CHECK(names(rank.error().message(), "WEFT_AGGD_SECRET"));
    CHECK(names(rank.error().message(), "WEFT_SECRET,"));
  }
}

TEST_CASE("ends of other versions say both, whoever speaks first") {
  const Key256 key = joinKeyOf({}, kSecret);
  const auto later = meetRank(ofVersion(Meeting(key).opening(), kVersion + 1), key);
  REQUIRE_FALSE(later);
  const std::string both = format("speaks version %d and this one version %d", kVersion + 1, kVersion);
  CHECK(names(later.error().message(), both));
  Meeting newer(key), older(key);
  newer.give(ofVersion(refusal(), kVersion + 1));
  CHECK(names(newer.refusalOfRank(), both));
  // Version 4: the daemon begins, with a nonce.
  older.give(
      ByteWriter().put(uint32_t{24}).put(kMagic).put(uint16_t{4}).put(uint16_t{32}).raw(Bytes(16)).take());
  CHECK(names(older.refusalOfRank(), "speaks version 4 and this one"));
}

TEST_CASE("what is no opening of this handshake gets nothing from a daemon") {
  const Key256 key = joinKeyOf({}, kSecret);
  const Bytes opening = Meeting(key).opening();
  CHECK(meetRank(opening, key));
  CHECK_FALSE(meetRank(Bytes(kOpeningBytes), key));
  for (size_t at = 0; at < opening.size(); at++) {
    Bytes changed = opening;
    changed[at] ^= static_cast<std::byte>(1u << at % 8);
    INFO(at);
    CHECK_FALSE(meetRank(changed, key));
    CHECK_FALSE(meetRank(std::span(opening).first(at), key));
  }
}

TEST_CASE("an answer that is not to this opening proves no daemon") {
  const Key256 key = joinKeyOf({}, kSecret);
  Meeting other(key), meeting(key);
  const auto met = meetRank(other.opening(), key);
  REQUIRE(met);
  meeting.give(met->answer);
  CHECK(names(meeting.refusalOfRank(), "does not know the secret"));
  Meeting third(key);
  third.give(bytesOf("HTTP/1.1 400 Bad Request\r\n\r\n"));
  CHECK(names(third.refusalOfRank(), "no message of weft's aggregation"));
}
