// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tests/nccl/api.h"

namespace nccltest {

// Values are small whole numbers, so that every type holds them and their sums exactly.
size_t typeSize(int type);
void putNumber(int type, char* to, double value);
double getNumber(int type, const char* from);

// What rank `rank` gives at element `index`.
double given(int rank, size_t index);
// What a reduction over `ranks` has there.
double reduced(int op, int ranks, size_t index);

// Device memory of `count` elements, freed at the end. One thread.
class Buffer {
 public:
  Buffer(int type, size_t count);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  char* at(size_t element) const { return data_ + element * typeSize(type_); }
  void fill(const std::function<double(size_t)>& value);
  // Compares every element; the first wrong one is told with `what`.
  bool holds(const std::function<double(size_t)>& value, const char* what) const;

 private:
  const int type_;
  const size_t count_;
  char* data_ = nullptr;
};

}  // namespace nccltest
