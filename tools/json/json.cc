// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/json/json.h"

#include <nlohmann/json.hpp>

namespace weft {

using Value = nlohmann::ordered_json;

namespace {

// Names of files and values of variables are bytes; JSON is UTF-8. Bytes that are none become U+FFFD.
std::string dumped(const Value& value, int indent) {
  return value.dump(indent, ' ', false, Value::error_handler_t::replace);
}

}  // namespace

Json::Json() : value_(std::make_unique<Value>()) {}
Json::Json(bool value) : value_(std::make_unique<Value>(value)) {}
Json::Json(double value) : value_(std::make_unique<Value>(value)) {}
Json::Json(const char* value) : value_(std::make_unique<Value>(value)) {}
Json::Json(const std::string& value) : value_(std::make_unique<Value>(value)) {}
Json::Json(Integer value) : value_(std::make_unique<Value>(value.value)) {}
Json::Json(Natural value) : value_(std::make_unique<Value>(value.value)) {}

Json::Json(std::initializer_list<Member> members) : value_(std::make_unique<Value>(Value::object())) {
  for (const Member& member : members) set(member.name, member.value);
}

Json Json::array() {
  Json json;
  *json.value_ = Value::array();
  return json;
}

Json::Json(const Json& other) : value_(std::make_unique<Value>(*other.value_)) {}
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(Json other) noexcept {
  value_ = std::move(other.value_);
  return *this;
}
Json::~Json() = default;

void Json::set(const char* name, Json value) {
  (*value_)[name] = std::move(*value.value_);
}

void Json::append(Json value) {
  value_->push_back(std::move(*value.value_));
}

void Json::addMembersOf(const Json& other) {
  value_->update(*other.value_);
}

void Json::forEachMember(const Visitor& visit) const {
  for (const auto& [name, value] : value_->items())
    visit(name, value.is_string() ? value.get<std::string>() : dumped(value, -1));
}

std::string Json::text() const {
  return dumped(*value_, 2);
}

}  // namespace weft
