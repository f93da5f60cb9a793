// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

// A JSON value as the tools write it: nlohmann's, whose templates take seconds to compile wherever they are
// used, behind a class of which that is done once. Used by one thread; misuse throws.
namespace weft {

class Json {
 public:
  struct Member;

  Json();  // null
  Json(bool value);
  Json(double value);
  Json(const char* value);
  Json(const std::string& value);
  Json(std::signed_integral auto value) : Json(Integer{static_cast<int64_t>(value)}) {}
  Json(std::unsigned_integral auto value) : Json(Natural{static_cast<uint64_t>(value)}) {}
  Json(std::initializer_list<Member> members);  // an object, which keeps their order
  template <class T>
  Json(const std::vector<T>& values) : Json(array()) {
    for (const T& value : values) append(value);
  }
  static Json array();

  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(Json other) noexcept;
  ~Json();

  void set(const char* name, Json value);  // of an object, or of null, which becomes one
  void append(Json value);                 // to an array
  // Of one object to another; the value of `other` counts where both have one.
  void addMembersOf(const Json& other);

  using Visitor = std::function<void(const std::string& name, const std::string& value)>;
  void forEachMember(const Visitor& visit) const;  // strings as they are, all else as JSON

  std::string text() const;  // on several lines

 private:
  struct Integer {
    int64_t value;
  };
  struct Natural {
    uint64_t value;
  };
  explicit Json(Integer value);
  explicit Json(Natural value);

  std::unique_ptr<nlohmann::ordered_json> value_;  // null only when it was moved from
};

struct Json::Member {
  const char* name;
  Json value;
};

}  // namespace weft
