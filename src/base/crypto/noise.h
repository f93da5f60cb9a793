// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <optional>
#include <span>

#include "src/base/bytes.h"
#include "src/base/crypto/hash.h"

// The handshake by which two processes that share a secret agree on fresh keys: the pattern NNpsk0 of the
// Noise protocol framework (revision 34), suite Noise_NNpsk0_25519_ChaChaPoly_SHA256. It has two messages,
// one of each end. The first message shows that its sender has the secret, or has heard somebody who has it.
// The second one shows the same of the accepting end, for this dial alone. The dialler is proven by the first
// thing that it seals with the new keys. The secret, learned later,
// does not open what was said. Values; one owner.
namespace weft {

constexpr size_t kNoiseBytes = 48;  // of a message: an ephemeral key and a tag
using NoiseMessage = std::array<std::byte, kNoiseBytes>;

// Both ends have the same, with `send` and `receive` swapped.
struct NoiseKeys {
  Key256 send{};
  Key256 receive{};
  Key256 binding{};   // the hash of all that was said: names this handshake, and is no secret
  Key256 exporter{};  // a secret of both ends, for keys of other uses
};

class NoiseHandshake {
 public:
  enum class Role : uint8_t { dialler, acceptor };

  // `prologue`: what both ends know or said in clear before; where it differs, no message is believed.
  NoiseHandshake(Role role, std::span<const std::byte> prologue, const Key256& secret);
  // For tests: with this ephemeral secret key.
  NoiseHandshake(Role role, std::span<const std::byte> prologue, const Key256& secret,
                 const Key256& ephemeral);
  ~NoiseHandshake();
  NoiseHandshake(const NoiseHandshake&) = default;
  NoiseHandshake& operator=(const NoiseHandshake&) = default;

  // The dialler says and then hears, the acceptor hears and then says; each once.
  NoiseMessage say();
  // False: the message is not by one who has the secret, or has not this prologue. The handshake is over.
  [[nodiscard]] bool hear(std::span<const std::byte> message);
  // When both messages have passed.
  NoiseKeys finish() const;

 private:
  void mixHash(std::span<const std::byte> bytes);
  void mixKey(std::span<const std::byte> secret);
  void mixSecret(const Key256& secret);
  [[nodiscard]] bool makeShared();
  Tag128 sealNothing();
  [[nodiscard]] bool opensToNothing(std::span<const std::byte> tag);

  Role role_;
  Key256 hash_{};
  Key256 chain_{};
  Key256 key_{};
  Key256 ownSecret_{};
  Key256 ownPublic_{};
  Key256 theirPublic_{};
  Key256 shared_{};  // of both key pairs
  bool heard_ = false;
};

}  // namespace weft
