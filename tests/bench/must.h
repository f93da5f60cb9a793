// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "weft/result.h"

// A bench ends where it cannot go on, with its name and why.
namespace weft::bench {

[[noreturn]] inline void die(const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, why.c_str());
  std::exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result) die(result.error().message());
  return result.take();
}

}  // namespace weft::bench
