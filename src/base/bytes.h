// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Bounds-checked little-endian encoding for everything that crosses a process boundary. A reader never runs
// past its input: the first read that finds too little sets failed(), and all later reads return zeros. So a
// decoder checks once, at its end. Values; one owner.
namespace weft {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian and so must the host be");

using Bytes = std::vector<std::byte>;

// Appends; never fails but for memory.
class ByteWriter {
 public:
  template <class T>
  requires std::is_integral_v<T> || std::is_enum_v<T> ByteWriter& put(T value) {
    return raw(std::as_bytes(std::span(&value, 1)));
  }
  // Not inlined, and not by insert(): g++ 12 would warn at -O3 of an overflow that cannot happen.
  [[gnu::noinline]] ByteWriter& raw(std::span<const std::byte> bytes) {
    if (bytes.empty()) return *this;
    out_.resize(out_.size() + bytes.size());
    std::memcpy(out_.data() + out_.size() - bytes.size(), bytes.data(), bytes.size());
    return *this;
  }
  // A length of 16 bits, then the bytes. Of more than 65,535 bytes only the length modulo 2^16 is written, so
  // callers bound what they hand in.
  ByteWriter& blob(std::span<const std::byte> bytes) {
    return put(static_cast<uint16_t>(bytes.size())).raw(bytes.first(static_cast<uint16_t>(bytes.size())));
  }
  ByteWriter& text(std::string_view text) { return blob(std::as_bytes(std::span(text.data(), text.size()))); }

  const Bytes& bytes() const { return out_; }
  Bytes take() { return std::move(out_); }

 private:
  Bytes out_;
};

// Points into the caller's bytes, which have to outlive it and every span that it returns.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> in) : in_(in) {}

  template <class T>
  requires std::is_integral_v<T> || std::is_enum_v<T> T get() {
    T value{};
    const auto bytes = raw(sizeof(T));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> raw(size_t n) {
    if (n > in_.size()) failed_ = true;
    if (failed_) return {};
    const auto head = in_.first(n);
    in_ = in_.subspan(n);
    return head;
  }
  // Leaves `out` unchanged where too little is left.
  void fill(std::span<std::byte> out) {
    const auto bytes = raw(out.size());
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  }
  std::span<const std::byte> blob() { return raw(get<uint16_t>()); }
  std::string text() {
    const auto bytes = blob();
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  size_t left() const { return in_.size(); }
  bool failed() const { return failed_; }
  bool done() const { return !failed_ && in_.empty(); }  // everything was read, and nothing was missing

 private:
  std::span<const std::byte> in_;
  bool failed_ = false;
};

}  // namespace weft
