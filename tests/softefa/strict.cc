// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/strict.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace softefa {

namespace {

const char* nameOf(StrictCheck check) {
  switch (check) {
    case kStrictCq:
      return "cq";
    case kStrictMr:
      return "mr";
    case kStrictOverlap:
      return "overlap";
    case kStrictAh:
      return "ah";
    case kStrictState:
      return "state";
  }
  return "?";
}

}  // namespace

void violation(unsigned enabled, StrictCheck check, const char* format, ...) {
  if ((enabled & check) == 0) return;
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "softefa: strict %s: %s\n", nameOf(check), text);
  std::abort();
}

}  // namespace softefa
