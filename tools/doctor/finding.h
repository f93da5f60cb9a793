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

struct Mend {
  // root: a command for a shell of root. setting: NAME=VALUE in the environment of the job. hand: a sentence.
  enum class By : uint8_t { nobody, root, setting, hand };
  By by = By::nobody;
  std::string text;
};

struct Finding {
  Severity severity = Severity::fine;
  std::string topic;     // "limits"
  std::string what;      // "open files"
  std::string evidence;  // what was seen, with its numbers
  Mend mend;
};
using Findings = std::vector<Finding>;

inline Mend byRoot(std::string command) {
  return {Mend::By::root, std::move(command)};
}
inline Mend bySetting(std::string assignment) {
  return {Mend::By::setting, std::move(assignment)};
}
inline Mend byHand(std::string sentence) {
  return {Mend::By::hand, std::move(sentence)};
}

}  // namespace weft::doctor
