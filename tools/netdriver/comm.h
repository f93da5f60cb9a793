// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <sys/mman.h>
#include <utility>

#include "src/base/config.h"
#include "tools/netdriver/library.h"
#include "weft/result.h"

// Owners of what a network table hands out, so that everything is given back in the order NCCL does:
// registration, memory, comm. Each refers to its Net, which must outlive it. Used by one thread at a time.
namespace weft::netdriver {

// ncclSuccess is fine; anything else is an error naming the call and what it was about.
Status check(ncclResult_t result, Call call, const std::string& about);

class Context {
 public:
  static Result<Context> create(Net& net, uint64_t commId, int trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF);
  Context(Context&& other) noexcept : net_(other.net_), raw_(std::exchange(other.raw_, nullptr)) {}
  Context& operator=(Context&& other) noexcept;
  ~Context();

  Net& net() const { return *net_; }
  void* raw() const { return raw_; }

 private:
  Context(Net* net, void* raw) : net_(net), raw_(raw) {}
  Net* net_;
  void* raw_;
};

enum class Side : uint8_t { send, recv, listen };

class Comm {
 public:
  Comm() = default;
  Comm(Net& net, Side side, void* raw) : net_(&net), side_(side), raw_(raw) {}
  Comm(Comm&& other) noexcept
      : net_(other.net_), side_(other.side_), raw_(std::exchange(other.raw_, nullptr)) {}
  Comm& operator=(Comm&& other) noexcept;
  ~Comm() { close(); }

  explicit operator bool() const { return raw_ != nullptr; }
  void* raw() const { return raw_; }
  Net& net() const { return *net_; }
  ncclResult_t close();
  // Forgets the comm without closing it, as NCCL does when it aborts.
  void abandon() { raw_ = nullptr; }

 private:
  Net* net_ = nullptr;
  Side side_ = Side::send;
  void* raw_ = nullptr;
};

// Page-aligned zeroed memory, like the host buffers NCCL registers.
class HostBuffer {
 public:
  static Result<HostBuffer> create(size_t bytes);
  HostBuffer() = default;
  HostBuffer(HostBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HostBuffer() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return bytes_; }
  std::span<std::byte> span() const { return {data(), bytes_}; }

  // Gives these bytes their memory, as NCCL's pinned buffers have it from the start: a page fault at first
  // use belongs into nobody's measurement.
  void populate(size_t from, size_t to) const;

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

class Registration {
 public:
  static Result<Registration> create(const Comm& comm, std::span<std::byte> memory);
  Registration() = default;
  Registration(Registration&& other) noexcept
      : net_(other.net_), comm_(other.comm_), mhandle_(std::exchange(other.mhandle_, nullptr)) {}
  Registration& operator=(Registration&& other) noexcept;
  ~Registration() { release(); }

  void* mhandle() const { return mhandle_; }
  ncclResult_t release();
  void abandon() { mhandle_ = nullptr; }

 private:
  Net* net_ = nullptr;
  void* comm_ = nullptr;
  void* mhandle_ = nullptr;
};

// The number of one device that has all of the plugin's cards, made by its table as NCCL does where it finds
// them close together; of as many as a table can name, the first ones. A single device stays as it is.
Result<int> mergeDevices(Net& net);

// A listening comm and the handle to carry to whoever connects.
struct Listener {
  Comm comm;
  Handle handle{};
};
Result<Listener> listen(const Context& context, int device);

// An outgoing and an incoming connection made as NCCL's service thread makes them: both are polled in turn,
// each on its own handle buffer, until both are there; the listener is closed as soon as its accept is done.
struct Ends {
  Comm send;
  Comm recv;
};
// Without a peer nothing is connected, without a listening comm nothing accepted, and that end stays empty.
Result<Ends> connectEnds(const Context& context, int device, const Handle* peer, Listener listener,
                         Milliseconds timeout);
Result<Ends> connectBoth(const Context& context, int device, Handle peer, Listener listener,
                         Milliseconds timeout);

}  // namespace weft::netdriver
