// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "weft/result.h"

// A JSON document that a user wrote: each value knows its file and its field, and each complaint is one line
// that names both. Values share the document, which lives as long as any of them. Any thread, as nothing
// changes.
namespace weft {

class JsonNode {
 public:
  // The document's outermost value. An error says at which byte the text is no JSON.
  static Result<JsonNode> parse(const std::string& file, const std::string& text);

  // The error of this field: "job.json: buckets[2].mb: " and the reason.
  Error complaint(const std::string& reason) const;
  const std::string& file() const { return *file_; }

  bool isObject() const;
  bool isArray() const;
  bool isText() const;

  // Of an object. A field that is missing is an error of `member`.
  bool has(const std::string& name) const;
  Result<JsonNode> member(const std::string& name) const;
  std::vector<std::string> names() const;
  // An error for anything but an object, and for a field that is none of these; it names the nearest of them.
  Status allow(std::initializer_list<const char*> names) const;

  // Of an array.
  size_t size() const;
  JsonNode element(size_t index) const;

  Result<double> number() const;
  Result<std::string> text() const;

 private:
  JsonNode(std::shared_ptr<const std::string> file, std::shared_ptr<const nlohmann::ordered_json> value,
           std::string field)
      : file_(std::move(file)), value_(std::move(value)), field_(std::move(field)) {}

  std::shared_ptr<const std::string> file_;
  std::shared_ptr<const nlohmann::ordered_json> value_;  // a part of the document, which it keeps alive
  std::string field_;                                    // "buckets[2].mb"; empty: the document
};

}  // namespace weft
