// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/nccl/cases.h"

namespace nccltest {

// Memory of NCCL's that all ranks register together: `count` numbers on each.
class Shared {
 public:
  Shared(const Rank& rank, size_t count) : comm_(rank.comm), count_(count) {
    expect(nccl.memAlloc(&data_, bytes()), "ncclMemAlloc");
    expect(cuda.memset(data_, 0, bytes()), "cudaMemset");
    expect(nccl.commWindowRegister(comm_, data_, bytes(), &window_, kSymmetricWindow),
           "ncclCommWindowRegister");
  }
  ~Shared() {
    if (gone_) return;
    expect(nccl.commWindowDeregister(comm_, window_), "ncclCommWindowDeregister");
    expect(nccl.memFree(data_), "ncclMemFree");
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  void leave() { gone_ = true; }  // the communicator was aborted
  Window window() const { return window_; }
  int32_t* at(size_t element) const { return static_cast<int32_t*>(data_) + element; }
  void write(const std::vector<int32_t>& values) const {
    expect(cuda.memcpy(data_, values.data(), values.size() * sizeof(int32_t), kDefaultCopy), "cudaMemcpy");
  }
  std::vector<int32_t> read() const {
    std::vector<int32_t> values(count_);
    expect(cuda.memcpy(values.data(), data_, bytes(), kDefaultCopy), "cudaMemcpy");
    return values;
  }

 private:
  size_t bytes() const { return count_ * sizeof(int32_t); }

  const Comm comm_;
  const size_t count_;
  void* data_ = nullptr;
  Window window_ = nullptr;
  bool gone_ = false;
};

}  // namespace nccltest
