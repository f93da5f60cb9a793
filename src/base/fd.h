// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <utility>

// A descriptor that closes itself. Move-only; one owner. No locking: one thread at a time.
namespace weft {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset(int fd = -1);

  // A child that is forked from now on closes its copy at once. A worker that the application forked would
  // otherwise keep our connections open after this process was killed, and the peers would take it for
  // stopped instead of dead.
  void closeInForkedChildren() const;

 private:
  int fd_ = -1;
};

}  // namespace weft
