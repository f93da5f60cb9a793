// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/report.h"

#include <cstdio>
#include <mutex>
#include <set>

#include "tests/softgpu/api.h"
#include "tests/softgpu/ownership.h"

namespace softgpu {

void report(const std::string& line) {
  const std::string whole = "software GPU: " + line + "\n";
  std::fputs(whole.c_str(), stderr);
}

int unsupported(const char* function, const char* what) {
  // Never destroyed: calls come from exit handlers too.
  static auto* const lock = &immortal<std::mutex>();
  static auto* const told = &immortal<std::set<std::string>>();
  const std::string name = std::string(function) + (*what ? std::string(": ") + what : "");
  const std::lock_guard guard(*lock);
  if (told->insert(name).second) report(name + " is not something the software GPU does");
  return kNotSupported;
}

}  // namespace softgpu
