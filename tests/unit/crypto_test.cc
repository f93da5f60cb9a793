// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdlib>

#include "src/base/crypto/gcm.h"
#include "src/base/crypto/hash.h"
#include "src/base/crypto/noise.h"
#include "src/base/crypto/seal.h"
#include "src/base/random.h"
#include "tests/support/catch.h"

// Hashes and derived keys give the values of their RFCs, and the handshake those of another implementation of
// the Noise protocol (noiseprotocol 0.3.1 for Python, with the keys below).
using namespace weft;

namespace {

Bytes fromHex(std::string_view hex) {
  Bytes out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::byte>(std::strtol(std::string(hex.substr(i, 2)).c_str(), nullptr, 16)));
  return out;
}

Bytes asBytes(std::span<const std::byte> bytes) {
  return Bytes(bytes.begin(), bytes.end());
}

Bytes textBytes(std::string_view text) {
  return asBytes(std::as_bytes(std::span(text.data(), text.size())));
}

Key256 countingKey(int from) {
  Key256 key{};
  for (size_t i = 0; i < key.size(); i++) key[i] = static_cast<std::byte>(from + static_cast<int>(i));
  return key;
}

const Bytes kPrologue = textBytes("weft test prologue");

struct Pair {
  explicit Pair(const Key256& dialling = countingKey(0), const Key256& accepting = countingKey(0),
                const Bytes& there = kPrologue)
      : dialler(NoiseHandshake::Role::dialler, kPrologue, dialling, countingKey(0x40)),
        acceptor(NoiseHandshake::Role::acceptor, there, accepting, countingKey(0x80)) {}
  NoiseHandshake dialler;
  NoiseHandshake acceptor;
};

Bytes sealed(Seal& seal, std::string_view text) {
  Bytes message = textBytes(text);
  Tag128 tag{};
  seal.close({}, message, tag);
  message.insert(message.end(), tag.begin(), tag.end());
  return message;
}

bool opens(Seal& seal, Bytes message, std::string_view text, const Bytes& beside = {}) {
  const size_t bytes = message.size() - kSealBytes;
  Tag128 tag{};
  std::copy(message.end() - kSealBytes, message.end(), tag.begin());
  message.resize(bytes);
  return seal.open(beside, message, tag) && message == textBytes(text);
}

}  // namespace

TEST_CASE("HMAC and HKDF give the values of RFC 4231 and RFC 5869") {
  CHECK(asBytes(hmacOf(Bytes(20, std::byte{0x0b}), textBytes("Hi There"))) ==
        fromHex("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"));
  const Bytes secret(22, std::byte{0x0b});
  const Bytes info = fromHex("f0f1f2f3f4f5f6f7f8f9");
  const std::string_view purpose(reinterpret_cast<const char*>(info.data()), info.size());
  CHECK(hkdf(fromHex("000102030405060708090a0b0c"), secret, purpose, 42) ==
        fromHex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"));
  CHECK(hkdf({}, secret, "", 42) ==
        fromHex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"));
}

TEST_CASE("a handshake gives what another implementation gives") {
  Pair pair;
  const NoiseMessage first = pair.dialler.say();
  CHECK(asBytes(first) == fromHex("79a631eede1bf9c98f12032cdeadd0e7a079398fc786b88cc846ec89af85a51a"
                                  "4b41425594d87fcccea3a0c4108217af"));
  REQUIRE(pair.acceptor.hear(first));
  const NoiseMessage second = pair.acceptor.say();
  CHECK(asBytes(second) == fromHex("493e82fc74464a59268817623d2053c5eb8e2cc4a988b4fee179ec6b010d531d"
                                   "cb8e56bf5257cfa8e54b81ef459ef2e6"));
  REQUIRE(pair.dialler.hear(second));
  const NoiseKeys near = pair.dialler.finish(), far = pair.acceptor.finish();
  CHECK(asBytes(near.binding) == fromHex("497634542d2e46e5b76e838759d0653f95b38a459e7fdba93257b3d9f375cdd7"));
  CHECK((near.send == far.receive && near.receive == far.send && near.exporter == far.exporter));
  CHECK(near.send != near.receive);
  Seal there(near.send), back(far.send);
  CHECK(sealed(there, "first") == fromHex("e926a4dd19057e1f68d100f74dba0dcf06de865202"));
  CHECK(sealed(there, "second") == fromHex("c2d4c6aa2bf370aede7441ffc4260f66899e97efad51"));
  CHECK(sealed(back, "answer") == fromHex("8d8fa3da7190234353fdd19b358834cc2287e9bf667b"));
}

TEST_CASE("a handshake fails with another secret, another prologue, and any byte that was changed") {
  Pair otherSecret(countingKey(0), countingKey(1));
  CHECK_FALSE(otherSecret.acceptor.hear(otherSecret.dialler.say()));
  Pair otherPrologue(countingKey(0), countingKey(0), textBytes("weft test prologuf"));
  CHECK_FALSE(otherPrologue.acceptor.hear(otherPrologue.dialler.say()));
  for (size_t at = 0; at < kNoiseBytes; at++) {
    Pair pair;
    NoiseMessage first = pair.dialler.say();
    first[at] ^= std::byte{1};
    CHECK_FALSE(pair.acceptor.hear(first));
    CHECK_FALSE(pair.acceptor.hear(first));  // a handshake hears one message
  }
  for (size_t at = 0; at < kNoiseBytes; at++) {
    Pair pair;
    REQUIRE(pair.acceptor.hear(pair.dialler.say()));
    NoiseMessage second = pair.acceptor.say();
    second[at] ^= std::byte{0x80};
    CHECK_FALSE(pair.dialler.hear(second));
  }
  Pair pair;
  const NoiseMessage first = pair.dialler.say();
  CHECK_FALSE(pair.acceptor.hear(std::span(first).first(kNoiseBytes - 1)));
}

TEST_CASE("each handshake has keys of its own, and an answer to another dial is not believed") {
  const Key256 secret = countingKey(3);
  NoiseHandshake one(NoiseHandshake::Role::dialler, kPrologue, secret);
  NoiseHandshake two(NoiseHandshake::Role::dialler, kPrologue, secret);
  NoiseHandshake there(NoiseHandshake::Role::acceptor, kPrologue, secret);
  const NoiseMessage first = one.say();
  CHECK(first != two.say());
  REQUIRE(there.hear(first));
  const NoiseMessage answer = there.say();
  CHECK_FALSE(two.hear(answer));
  CHECK(one.hear(answer));
}

TEST_CASE("sealed messages open once, in their order, whole, and beside what they were sealed beside") {
  Key256 key{};
  fillRandom(key);
  Seal out(key);
  const Bytes first = sealed(out, "first"), second = sealed(out, "second");
  for (size_t at = 0; at < first.size(); at++) {
    Seal in(key);
    Bytes changed = first;
    changed[at] ^= std::byte{4};
    CHECK_FALSE(opens(in, changed, "first"));
    CHECK(opens(in, first, "first"));  // what did not open has taken no number
  }
  Seal in(key);
  CHECK_FALSE(opens(in, second, "second"));
  CHECK_FALSE(opens(in, first, "first", textBytes("x")));
  CHECK(opens(in, first, "first"));
  CHECK_FALSE(opens(in, first, "first"));
  CHECK(opens(in, second, "second"));
}

TEST_CASE("records sealed by either library open by the other, once and unchanged") {
  const Key256 key = countingKey(5);
  auto first = makeGcmSeal(key);
  auto sodium = makeSodiumGcmSeal(key);
  if (!first || !sodium) return;  // a processor without instructions for AES
  Bytes text(1000), out(1000), back(1000);
  fillRandom(text);
  for (int i = 0; i < 3; i++) {
    Tag128 tag{}, same{};
    REQUIRE((*first)->close(text, out.data(), tag));
    const Bytes once = out;
    REQUIRE(sodium->close(text, out.data(), same));
    CHECK((once == out && tag == same && once != text));
  }
  auto there = makeGcmSeal(key), bad = makeGcmSeal(key);
  auto near = makeSodiumGcmSeal(key);
  Tag128 tag{};
  REQUIRE(near->close(text, out.data(), tag));
  CHECK(((*there)->open(out, back.data(), tag) && back == text));
  CHECK_FALSE((*there)->open(out, back.data(), tag));
  out[17] ^= std::byte{1};
  CHECK_FALSE((*bad)->open(out, back.data(), tag));
  // The first vector of a whole block in the GCM specification (test case 14): a zero key, nonce and text.
  auto zero = makeGcmSeal(Key256{});
  Bytes block(16);
  REQUIRE((*zero)->close(block, block.data(), tag));
  CHECK(block == fromHex("cea7403d4d606b6e074ec5d3baf39d18"));
  CHECK(asBytes(tag) == fromHex("d0d1c8a799996bf0265b98b5d48ab919"));
}
