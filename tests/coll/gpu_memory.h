// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "weft/collective.h"

// Memory of the stand-in's GPU (cuda_stand_in.cc), registered with a group while it lives, which must end
// before the group does. One thread.
namespace weft::test {

// Path of the stand-in, for Config::libcuda of the ranks.
std::string cudaStandIn();

class GpuMemory {
 public:
  GpuMemory(coll::Group& group, size_t bytes);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  std::byte* data() const { return data_; }
  coll::GroupMemory* handle() const { return handle_; }

 private:
  coll::Group& group_;
  std::byte* data_ = nullptr;
  coll::GroupMemory* handle_ = nullptr;
};

}  // namespace weft::test
