// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "weft/result.h"

// Reads the plain values of a Python pickle: numbers, texts, lists, tuples and dicts. An instruction
// that would make Python import or call something is an error, so a file that nobody vouches for can be read.
// Pure.
namespace weft::counted {

struct Pickled;
using PickledRef = const Pickled*;  // into its Pickle

struct Pickled {
  using List = std::vector<PickledRef>;                         // also of a tuple
  using Dict = std::vector<std::pair<PickledRef, PickledRef>>;  // in the order of the file
  std::variant<std::monostate, bool, int64_t, double, std::string, List, Dict> value;

  const Pickled* at(std::string_view key) const;  // of a dict; null: it has none, or this is no dict
  const List* list() const { return std::get_if<List>(&value); }
  std::string text() const;  // empty: it is none
  int64_t number(int64_t otherwise = -1) const;
};

// All values of a file: a value may be part of several others, and of itself.
struct Pickle {
  std::deque<Pickled> values;
  const Pickled* root = nullptr;
};

Result<Pickle> readPickle(std::string_view bytes);

}  // namespace weft::counted
