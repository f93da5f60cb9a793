// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// A fact that a check of `weft doctor` has found, how bad it is, and what mends it. Plain values; any thread.
namespace weft::doctor {

// In the order of their weight. "unknown" is said where a check could not look.
enum class Severity : uint8_t { fine, note, unknown, warning, error };

// The cure of a finding that is a command for root, by name. The text of each is in mend.cc and nowhere else:
// a host that tells another of its findings sends names, never commands.
enum class Cure : uint8_t {
  openFiles,
  lockedMemory,
  threads,
  mountShm,
  enlargeShm,
  bringUp,
  deleteAddress,
  answerApart,
  longPackets,
  oneLength,
  fullDuplex,
  bridgeControl,
  passThrough,
  morePorts,
  socketBuffer,
  subnetManager,
  portAddress,
  deviceAccess,
  letPortIn,
  lengthOfHosts,
  lengthOfPath,
};

struct Mend {
  // root: a cure and its arguments. setting: NAME=VALUE in the environment of the job. hand: a sentence.
  enum class By : uint8_t { nobody, root, setting, hand };
  By by = By::nobody;
  Cure cure{};                         // of root
  std::vector<std::string> arguments;  // those of the cure; or the one assignment, or the one sentence
};

struct Finding {
  Severity severity = Severity::fine;
  std::string topic;     // "limits"
  std::string what;      // "open files"
  std::string evidence;  // what was seen, with its numbers
  Mend mend;
};
using Findings = std::vector<Finding>;

inline Mend byRoot(Cure cure, std::vector<std::string> arguments = {}) {
  return {Mend::By::root, cure, std::move(arguments)};
}
inline Mend bySetting(std::string assignment) {
  return {Mend::By::setting, {}, {std::move(assignment)}};
}
inline Mend byHand(std::string sentence) {
  return {Mend::By::hand, {}, {std::move(sentence)}};
}

}  // namespace weft::doctor
