// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

// The one file that all allocations of a process are in, so that its mappings are of one inode, as those of a
// real driver are all of the same device files. Ahead of each allocation lies a page of its own, which every
// process that has the allocation maps: in it is the allocation's size, how many have it, and how many
// descriptors of it are on their way. The last one to let go of it gives the pages back, whichever process
// that is. Places are not used twice. A process that is killed leaves its count behind, and so does a
// descriptor that nobody imports: then the pages stay until the file's owner has ended. Any thread.
namespace softgpu {

struct PoolPage;

// A place in a pool, ours or another process's, that is counted as taken while this lives.
class PoolPlace {
 public:
  PoolPlace() = default;
  PoolPlace(int fd, size_t begin, PoolPage* page) : fd_(fd), begin_(begin), page_(page) {}
  PoolPlace(PoolPlace&& other) noexcept;
  PoolPlace& operator=(PoolPlace&&) = delete;
  ~PoolPlace();

  int fd() const { return fd_; }           // a descriptor of the file, this object's own
  size_t begin() const { return begin_; }  // of the bytes in the file
  size_t size() const;
  // A descriptor of it is handed out, which stands for it even when its owner has freed it.
  void promise() const;

 private:
  int fd_ = -1;
  size_t begin_ = 0;
  PoolPage* page_ = nullptr;
};

// A new place of zeros; nothing, with a line on stderr: there is no memory.
std::optional<PoolPlace> takePlace(size_t size);
// The place that begins at `begin` of the file behind `fd`, which this takes over. `promised`: by a
// descriptor that was handed out. Nothing, and `fd` is closed: that is no such place, or nobody has it any
// more.
std::optional<PoolPlace> adoptPlace(int fd, size_t begin, bool promised);
bool isPool(int fd);
bool isOfThisProcess(const PoolPlace& place);

}  // namespace softgpu
