// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/json/reader.h"

#include <nlohmann/json.hpp>

#include "src/base/nearest.h"

namespace weft {

using Document = nlohmann::ordered_json;

Result<JsonNode> JsonNode::parse(const std::string& file, const std::string& text) {
  const auto name = std::make_shared<const std::string>(file);
  try {
    return JsonNode(name, std::make_shared<const Document>(Document::parse(text)), "");
  } catch (const Document::parse_error& error) {
    return JsonNode(name, nullptr, "").complaint("is no JSON at byte " + std::to_string(error.byte));
  } catch (const Document::exception& error) {
    return JsonNode(name, nullptr, "").complaint(std::string("is no JSON: ") + error.what());
  }
}

Error JsonNode::complaint(const std::string& reason) const {
  return {Code::config, "reading " + *file_, *file_ + ": " + (field_.empty() ? "" : field_ + ": ") + reason};
}

bool JsonNode::isObject() const {
  return value_->is_object();
}
bool JsonNode::isArray() const {
  return value_->is_array();
}
bool JsonNode::isText() const {
  return value_->is_string();
}

bool JsonNode::has(const std::string& name) const {
  return value_->is_object() && value_->contains(name);
}

Result<JsonNode> JsonNode::member(const std::string& name) const {
  const std::string field = field_.empty() ? name : field_ + "." + name;
  if (!has(name)) return JsonNode(file_, value_, field).complaint("is missing");
  return JsonNode(file_, {value_, &(*value_)[name]}, field);
}

std::vector<std::string> JsonNode::names() const {
  std::vector<std::string> found;
  for (const auto& [name, value] : value_->items()) found.push_back(name);
  return found;
}

Status JsonNode::allow(std::initializer_list<const char*> names) const {
  if (!isObject()) return complaint("must be an object with fields");
  const std::vector<std::string> known(names.begin(), names.end());
  for (const std::string& name : this->names()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string field = field_.empty() ? name : field_ + "." + name;
    return JsonNode(file_, value_, field).complaint("is no field here" + nearestHint(name, known));
  }
  return {};
}

size_t JsonNode::size() const {
  return value_->is_array() ? value_->size() : 0;
}

JsonNode JsonNode::element(size_t index) const {
  return {file_, {value_, &(*value_)[index]}, field_ + "[" + std::to_string(index) + "]"};
}

Result<double> JsonNode::number() const {
  if (!value_->is_number()) return complaint("must be a number");
  return value_->get<double>();
}

Result<std::string> JsonNode::text() const {
  if (!value_->is_string()) return complaint("must be a text");
  return value_->get<std::string>();
}

}  // namespace weft
