// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/crypto/noise.h"

#include <algorithm>
#include <sodium.h>
#include <string_view>

#include "src/base/crypto/library.h"
#include "src/base/crypto/seal.h"
#include "src/base/random.h"

// The state of the handshake, in the words of the specification: MixHash, MixKey, MixKeyAndHash, Split.
namespace weft {

namespace {

constexpr std::string_view kSuite = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";

std::span<const std::byte> bytesIn(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Key256 freshSecret() {
  Key256 key{};
  fillRandom(key);
  return key;
}

Key256 keyFrom(std::span<const std::byte> bytes) {
  Key256 key{};
  std::copy_n(bytes.begin(), key.size(), key.begin());
  return key;
}

Key256 publicOf(const Key256& secret) {
  Key256 out{};
  (void)crypto_scalarmult_base(sodiumBytes(out.data()), sodiumBytes(secret.data()));
  return out;
}

}  // namespace

NoiseHandshake::NoiseHandshake(Role role, std::span<const std::byte> prologue, const Key256& secret)
    : NoiseHandshake(role, prologue, secret, freshSecret()) {}

NoiseHandshake::NoiseHandshake(Role role, std::span<const std::byte> prologue, const Key256& secret,
                               const Key256& ephemeral)
    : role_(role), ownSecret_(ephemeral) {
  startSodium();
  hash_ = chain_ = sha256(bytesIn(kSuite));
  mixHash(prologue);
  mixSecret(secret);
}

NoiseHandshake::~NoiseHandshake() {
  for (Key256* key : {&chain_, &key_, &ownSecret_, &shared_}) wipe(*key);
}

NoiseMessage NoiseHandshake::say() {
  ownPublic_ = publicOf(ownSecret_);
  mixHash(ownPublic_);
  mixKey(ownPublic_);
  if (role_ == Role::acceptor) mixKey(shared_);
  NoiseMessage message{};
  std::copy(ownPublic_.begin(), ownPublic_.end(), message.begin());
  const Tag128 tag = sealNothing();
  std::copy(tag.begin(), tag.end(), message.begin() + sizeof ownPublic_);
  return message;
}

bool NoiseHandshake::hear(std::span<const std::byte> message) {
  if (message.size() != kNoiseBytes || heard_) return false;
  heard_ = true;
  theirPublic_ = keyFrom(message.first(sizeof theirPublic_));
  mixHash(theirPublic_);
  mixKey(theirPublic_);
  if (role_ == Role::acceptor) return opensToNothing(message.last(kSealBytes)) && makeShared();
  if (!makeShared()) return false;
  mixKey(shared_);
  return opensToNothing(message.last(kSealBytes));
}

NoiseKeys NoiseHandshake::finish() const {
  Bytes both = hkdf(chain_, {}, "", 2 * sizeof(Key256));
  const Key256 ofDialler = keyFrom(std::span(both).first(sizeof(Key256)));
  const Key256 ofAcceptor = keyFrom(std::span(both).last(sizeof(Key256)));
  wipe(both);
  NoiseKeys keys;
  keys.send = role_ == Role::dialler ? ofDialler : ofAcceptor;
  keys.receive = role_ == Role::dialler ? ofAcceptor : ofDialler;
  keys.binding = hash_;
  keys.exporter = derivedKey(hash_, chain_, "weft exporter");
  return keys;
}

void NoiseHandshake::mixHash(std::span<const std::byte> bytes) {
  ByteWriter writer;
  hash_ = sha256(writer.raw(hash_).raw(bytes).bytes());
}

void NoiseHandshake::mixKey(std::span<const std::byte> secret) {
  Bytes both = hkdf(chain_, secret, "", 2 * sizeof(Key256));
  chain_ = keyFrom(std::span(both).first(sizeof(Key256)));
  key_ = keyFrom(std::span(both).last(sizeof(Key256)));
  wipe(both);
}

void NoiseHandshake::mixSecret(const Key256& secret) {
  Bytes all = hkdf(chain_, secret, "", 3 * sizeof(Key256));
  chain_ = keyFrom(std::span(all).first(sizeof(Key256)));
  mixHash(std::span(all).subspan(sizeof(Key256), sizeof(Key256)));
  key_ = keyFrom(std::span(all).last(sizeof(Key256)));
  wipe(all);
}

// False: the other end's public key is one of the few that give the same result whatever ours is.
bool NoiseHandshake::makeShared() {
  return crypto_scalarmult(sodiumBytes(shared_.data()), sodiumBytes(ownSecret_.data()),
                           sodiumBytes(theirPublic_.data())) == 0;
}

// Each key of the handshake seals one message, so its number is 0.
Tag128 NoiseHandshake::sealNothing() {
  Tag128 tag{};
  Seal(key_).close(hash_, {}, tag);
  mixHash(tag);
  return tag;
}

bool NoiseHandshake::opensToNothing(std::span<const std::byte> tag) {
  const auto whole = std::span<const std::byte, kSealBytes>(tag);
  if (!Seal(key_).open(hash_, {}, whole)) return false;
  mixHash(whole);
  return true;
}

}  // namespace weft
