// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/nccl/data.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace nccltest {

namespace {

template <typename T>
void put(char* to, double value) {
  const auto typed = static_cast<T>(value);
  std::memcpy(to, &typed, sizeof typed);
}

template <typename T>
double get(const char* from) {
  T typed;
  std::memcpy(&typed, from, sizeof typed);
  return static_cast<double>(typed);
}

// Whole numbers, and halves of them, as IEEE half: exact for what is used here.
uint16_t toHalf(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double mantissa = std::frexp(std::fabs(value), &exponent);
  const auto bits = static_cast<unsigned>(std::lround((mantissa * 2 - 1) * 1024));
  return static_cast<uint16_t>((value < 0 ? 0x8000U : 0U) | (static_cast<unsigned>(exponent + 14) << 10) |
                               bits);
}

double fromHalf(uint16_t half) {
  if ((half & 0x7fff) == 0) return 0;
  const double value = std::ldexp(1.0 + (half & 0x3ff) / 1024.0, ((half >> 10) & 31) - 15);
  return (half & 0x8000) != 0 ? -value : value;
}

}  // namespace

size_t typeSize(int type) {
  static constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[type];
}

void putNumber(int type, char* to, double value) {
  const auto single = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &single, sizeof bits);
  switch (type) {
    case kInt8:
      put<int8_t>(to, value);
      break;
    case kUint8:
      put<uint8_t>(to, value);
      break;
    case kInt32:
      put<int32_t>(to, value);
      break;
    case kUint32:
      put<uint32_t>(to, value);
      break;
    case kInt64:
      put<int64_t>(to, value);
      break;
    case kUint64:
      put<uint64_t>(to, value);
      break;
    case kFloat16:
      put<uint16_t>(to, toHalf(value));
      break;
    case kFloat32:
      put<float>(to, value);
      break;
    case kFloat64:
      put<double>(to, value);
      break;
    default:
      put<uint16_t>(to, bits >> 16);
      break;
  }
}

double getNumber(int type, const char* from) {
  switch (type) {
    case kInt8:
      return get<int8_t>(from);
    case kUint8:
      return get<uint8_t>(from);
    case kInt32:
      return get<int32_t>(from);
    case kUint32:
      return get<uint32_t>(from);
    case kInt64:
      return get<int64_t>(from);
    case kUint64:
      return get<uint64_t>(from);
    case kFloat16:
      return fromHalf(static_cast<uint16_t>(get<uint16_t>(from)));
    case kFloat32:
      return get<float>(from);
    case kFloat64:
      return get<double>(from);
    default:
      break;
  }
  const uint32_t bits = static_cast<uint32_t>(get<uint16_t>(from)) << 16;
  float single = 0;
  std::memcpy(&single, &bits, sizeof single);
  return static_cast<double>(single);
}

double given(int rank, size_t index) {
  return static_cast<double>((static_cast<size_t>(rank) + index) % 2 + 1);
}

double reduced(int op, int ranks, size_t index) {
  double result = given(0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = given(rank, index);
    if (op == kSum || op == kAvg) result += next;
    if (op == kProd) result *= next;
    if (op == kMax) result = std::max(result, next);
    if (op == kMin) result = std::min(result, next);
  }
  return op == kAvg ? result / ranks : result;
}

Buffer::Buffer(int type, size_t count) : type_(type), count_(count) {
  void* data = nullptr;
  expect(cuda.malloc(&data, std::max<size_t>(count * typeSize(type), 1)), "cudaMalloc");
  data_ = static_cast<char*>(data);
}

Buffer::~Buffer() {
  cuda.free(data_);
}

void Buffer::fill(const std::function<double(size_t)>& value) {
  std::vector<char> host(count_ * typeSize(type_));
  for (size_t i = 0; i < count_; ++i) putNumber(type_, host.data() + i * typeSize(type_), value(i));
  if (!host.empty()) expect(cuda.memcpy(data_, host.data(), host.size(), kDefaultCopy), "cudaMemcpy");
}

bool Buffer::holds(const std::function<double(size_t)>& value, const char* what) const {
  std::vector<char> host(count_ * typeSize(type_));
  if (!host.empty()) expect(cuda.memcpy(host.data(), data_, host.size(), kDefaultCopy), "cudaMemcpy");
  // Averages are rounded by the type, integers' towards zero.
  for (size_t i = 0; i < count_; ++i) {
    const bool whole = type_ < kFloat16;
    const double wanted = whole ? std::trunc(value(i)) : value(i);
    const double have = getNumber(type_, host.data() + i * typeSize(type_));
    const double slack = whole ? 0 : std::fabs(wanted) * (typeSize(type_) == 2 ? 0.02 : 1e-6);
    if (std::fabs(have - wanted) <= slack) continue;
    std::fprintf(stderr, "%s: type %d, element %zu of %zu is %g, not %g\n", what, type_, i, count_, have,
                 wanted);
    return false;
  }
  return true;
}

}  // namespace nccltest
