// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/fields.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

namespace weft::plan {

Result<double> numberOf(const JsonNode& value, const Bounds& bounds) {
  TRY(const double number, value.number());
  const bool low = number < bounds.least || (number == bounds.least && !bounds.orLeast);
  if (!low && number <= bounds.most) return number;
  const char* const from = bounds.orLeast ? "at least" : "above";
  const std::string most = bounds.most < kMostNumber ? fmt::format(" and at most {:g}", bounds.most) : "";
  return value.complaint(
      fmt::format("{:g} is not possible; it must be {} {:g}{}", number, from, bounds.least, most));
}

Status take(const JsonNode& object, const char* name, const Bounds& bounds, double* into) {
  return takeScaled(object, name, bounds, 1, into);
}

Status takeScaled(const JsonNode& object, const char* name, const Bounds& bounds, double unit, double* into) {
  if (!object.has(name)) return {};
  TRY(const JsonNode value, object.member(name));
  TRY(const double number, numberOf(value, bounds));
  *into = number * unit;
  return {};
}

Status takeText(const JsonNode& object, const char* name, std::string* into) {
  if (!object.has(name)) return {};
  TRY(const JsonNode value, object.member(name));
  TRY(*into, value.text());
  return {};
}

Status need(const JsonNode& object, const char* name, const Bounds& bounds, double* into) {
  TRY(object.member(name));
  return take(object, name, bounds, into);
}

Result<std::string> fileText(const std::string& path) {
  constexpr std::uintmax_t kMostBytes = 64 << 20;
  std::error_code failed;
  const std::filesystem::file_status status = std::filesystem::status(path, failed);
  if (failed || !std::filesystem::is_regular_file(status))
    return Error(Code::config, "reading a file", path + ": there is no such file");
  if (std::filesystem::file_size(path, failed) > kMostBytes)
    return Error(Code::config, "reading a file", path + ": is larger than 64 MiB");
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad())
    return Error(Code::config, "reading a file", path + ": cannot be read", errno);
  return text;
}

}  // namespace weft::plan
