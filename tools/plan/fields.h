// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "tools/json/reader.h"

// Numbers and texts of a user's file, with the limits they must keep. Pure functions; any thread.
namespace weft::plan {

constexpr double kMostNumber = 1e30;

struct Bounds {
  double least = 0;
  double most = kMostNumber;
  bool orLeast = true;  // the least itself is allowed
};
constexpr Bounds kPositive{0, kMostNumber, false};
constexpr Bounds kCount{1, 1e9, true};
constexpr Bounds kShare{0, 1, true};

// An error of a value outside of its bounds says what is allowed.
Result<double> numberOf(const JsonNode& value, const Bounds& bounds);

// A field that may be missing: *into stays then.
Status take(const JsonNode& object, const char* name, const Bounds& bounds, double* into);
Status takeText(const JsonNode& object, const char* name, std::string* into);
// A field that must be there.
Status need(const JsonNode& object, const char* name, const Bounds& bounds, double* into);

// In units of `unit`: milliseconds in the file, microseconds in the plan. Fields that may be missing.
Status takeScaled(const JsonNode& object, const char* name, const Bounds& bounds, double unit, double* into);

// The text of a file. Any error names it.
Result<std::string> fileText(const std::string& path);

}  // namespace weft::plan
