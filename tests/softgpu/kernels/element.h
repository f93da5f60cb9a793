// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace softgpu {

// How elements of one type are reduced, with the argument that NCCL gives its kernels. Not bound to a thread.
class Reduction {
 public:
  virtual ~Reduction() = default;
  virtual size_t size() const = 0;  // of an element
  // to[i] = a[i] op b[i]; `to` may be one of them.
  virtual void reduce(void* to, const void* a, const void* b, size_t count) const = 0;
  // What happens to the own input before, and to the result after.
  virtual void before(void* to, const void* from, size_t count) const = 0;
  virtual void after(void* to, size_t count) const = 0;
  virtual bool hasBefore() const = 0;
  virtual bool hasAfter() const = 0;
};

// By the names of function.h; "" as type: bytes that are copied. Null when there is no such type or
// reduction.
std::unique_ptr<Reduction> makeReduction(const std::string& reduction, const std::string& type,
                                         uint64_t argument);

}  // namespace softgpu
