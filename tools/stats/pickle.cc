// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/pickle.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>

#include <fmt/format.h>

namespace weft::counted {

// A list may have one dict a million times, so the look for a key in it is bounded.
constexpr size_t kMostKeys = 256;
constexpr size_t kMostValues = size_t{4} << 20;  // of a file; each takes more room here than there

const Pickled* Pickled::at(std::string_view key) const {
  const Dict* dict = std::get_if<Dict>(&value);
  if (!dict) return nullptr;
  const size_t looked = std::min(dict->size(), kMostKeys);
  for (size_t i = 0; i < looked; i++)
    if (const auto* text = std::get_if<std::string>(&(*dict)[i].first->value); text && *text == key)
      return (*dict)[i].second;
  return nullptr;
}

std::string Pickled::text() const {
  const auto* text = std::get_if<std::string>(&value);
  return text ? *text : std::string();
}

int64_t Pickled::number(int64_t otherwise) const {
  const auto* number = std::get_if<int64_t>(&value);
  return number ? *number : otherwise;
}

namespace {

// The machine that a pickle is a program for, without the instructions that call anything. Each `take`
// returns false where the file ends, or where the instruction does not fit what is on the stack.
class Machine {
 public:
  explicit Machine(std::string_view bytes) : rest_(bytes) {}

  Result<Pickle> run() {
    while (!rest_.empty()) {
      const auto code = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      if (code == '.' && stack_.size() != 1) break;
      if (code == '.') return Pickle{std::move(values_), stack_.back()};
      if (!step(code)) return broken(code);
    }
    return broken('.');
  }

 private:
  Error broken(uint8_t code) const {
    return Error(Code::invalidArgument, "reading a pickle",
                 fmt::format("the instruction {:#04x}, {} bytes before the end, is none of plain values",
                             code, rest_.size()));
  }

  bool step(uint8_t code) {
    return number(code) || text(code) || remembered(code) || built(code) || ok(code);
  }

  // Instructions without a value.
  bool ok(uint8_t code) {
    if (code == 0x80) return skip(1);  // the protocol
    if (code == 0x95) return skip(8);  // a frame
    if (code != '(') return false;
    marks_.push_back(stack_.size());
    return true;
  }

  bool number(uint8_t code) {
    int64_t value = 0;
    switch (code) {
      case 'N':
        return push(std::monostate());
      case 0x88:
      case 0x89:
        return push(code == 0x88);
      case 'K':
        return take(1, &value) && push(value);
      case 'M':
        return take(2, &value) && push(value);
      case 'J':
        return take(4, &value) && push(int64_t{static_cast<int32_t>(value)});
      case 0x8a:
        return longNumber();
      case 'G':
        return real();
      default:
        return false;
    }
  }

  bool longNumber() {
    int64_t length = 0, value = 0;
    if (!take(1, &length) || length > 8 || !take(static_cast<size_t>(length), &value)) return false;
    if (length > 0 && length < 8 && (value >> (length * 8 - 1) & 1) != 0) value -= int64_t{1} << (length * 8);
    return push(value);
  }

  bool real() {
    if (rest_.size() < 8) return false;
    uint64_t bits = 0;
    for (size_t i = 0; i < 8; i++) bits = bits << 8 | static_cast<uint8_t>(rest_[i]);
    return skip(8) && push(std::bit_cast<double>(bits));
  }

  bool text(uint8_t code) {
    const size_t width = code == 'X' ? 4 : code == 0x8c ? 1 : code == 0x8d ? 8 : 0;
    int64_t length = 0;
    if (width == 0 || !take(width, &length) || static_cast<uint64_t>(length) > rest_.size()) return false;
    const std::string value(rest_.substr(0, static_cast<size_t>(length)));
    return skip(static_cast<size_t>(length)) && push(value);
  }

  bool remembered(uint8_t code) {
    int64_t place = 0;
    if (code == 0x94) return !stack_.empty() && remember(static_cast<int64_t>(memory_.size()));
    const bool puts = code == 'q' || code == 'r';
    const bool gets = code == 'h' || code == 'j';
    if (!puts && !gets) return false;
    if (!take(code == 'q' || code == 'h' ? 1 : 4, &place)) return false;
    if (puts) return !stack_.empty() && remember(place);
    const auto found = memory_.find(place);
    if (found == memory_.end()) return false;
    stack_.push_back(found->second);
    return true;
  }

  bool remember(int64_t place) {
    memory_[place] = stack_.back();
    return true;
  }

  bool built(uint8_t code) {
    switch (code) {
      case '}':
        return push(Pickled::Dict());
      case ']':
      case ')':
        return push(Pickled::List());
      case 't':
        return tuple(sinceMark());
      case 0x85:
      case 0x86:
      case 0x87:
        return stack_.size() >= code - 0x84u && tuple(last(code - 0x84u));
      case 'a':
        return stack_.size() >= 2 && append(last(1));
      case 'e':
        return append(sinceMark());
      case 's':
        return stack_.size() >= 3 && set(last(2));
      case 'u':
        return set(sinceMark());
      default:
        return false;
    }
  }

  bool tuple(Pickled::List parts) { return push(std::move(parts)); }

  bool append(const Pickled::List& parts) {
    auto* list = stack_.empty() ? nullptr : std::get_if<Pickled::List>(&stack_.back()->value);
    if (list) list->insert(list->end(), parts.begin(), parts.end());
    return list != nullptr;
  }

  bool set(const Pickled::List& parts) {
    auto* dict = stack_.empty() ? nullptr : std::get_if<Pickled::Dict>(&stack_.back()->value);
    if (!dict || parts.size() % 2 != 0) return false;
    for (size_t i = 0; i < parts.size(); i += 2) dict->emplace_back(parts[i], parts[i + 1]);
    return true;
  }

  Pickled::List last(size_t count) {
    const Pickled::List parts(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return parts;
  }

  // Without a mark the stack is taken whole, and what follows does not fit it.
  Pickled::List sinceMark() {
    const size_t mark = marks_.empty() ? 0 : marks_.back();
    if (!marks_.empty()) marks_.pop_back();
    return last(stack_.size() - std::min(mark, stack_.size()));
  }

  template <class Value>
  bool push(Value value) {
    if (values_.size() == kMostValues) return false;
    stack_.push_back(&values_.emplace_back(Pickled{std::move(value)}));
    return true;
  }

  bool skip(size_t bytes) {
    if (bytes > rest_.size()) return false;
    rest_.remove_prefix(bytes);
    return true;
  }

  // Little-endian.
  bool take(size_t bytes, int64_t* value) {
    if (bytes > rest_.size()) return false;
    uint64_t all = 0;
    for (size_t i = 0; i < bytes; i++) all |= uint64_t{static_cast<uint8_t>(rest_[i])} << (8 * i);
    *value = static_cast<int64_t>(all);
    return skip(bytes);
  }

  std::string_view rest_;
  std::deque<Pickled> values_;
  std::vector<Pickled*> stack_;
  std::vector<size_t> marks_;
  std::map<int64_t, Pickled*> memory_;
};

}  // namespace

Result<Pickle> readPickle(std::string_view bytes) {
  return Machine(bytes).run();
}

}  // namespace weft::counted
