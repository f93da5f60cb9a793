// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/comm.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <numeric>
#include <thread>
#include <unistd.h>
#include <vector>

namespace weft::netdriver {

Status check(ncclResult_t result, Call call, const std::string& about) {
  if (result == ncclSuccess || result == ncclInProgress) return {};
  const Code code = result == ncclRemoteError ? Code::remote : Code::system;
  return Error(code, callName(call), about + " ended with " + resultName(result));
}

Result<Context> Context::create(Net& net, uint64_t commId, int trafficClass) {
  void* raw = nullptr;
  TRY(check(net.init(&raw, commId, trafficClass), Call::init, net.name()));
  return Context(&net, raw);
}

Result<int> mergeDevices(Net& net) {
  int count = 0;
  TRY(check(net.devices(&count), Call::devices, net.name()));
  if (count < 2) return 0;
  std::vector<int> members(std::min<size_t>(static_cast<size_t>(count), NCCL_NET_MAX_DEVS_PER_NIC_V9));
  std::iota(members.begin(), members.end(), 0);
  int device = 0;
  TRY(check(net.makeVDevice(members, &device), Call::makeVDevice, net.name()));
  return device;
}

Context& Context::operator=(Context&& other) noexcept {
  std::swap(net_, other.net_);
  std::swap(raw_, other.raw_);
  return *this;
}

Context::~Context() {
  if (raw_ != nullptr) net_->finalize(raw_);
}

Comm& Comm::operator=(Comm&& other) noexcept {
  if (this != &other) {
    close();
    net_ = other.net_;
    side_ = other.side_;
    raw_ = std::exchange(other.raw_, nullptr);
  }
  return *this;
}

ncclResult_t Comm::close() {
  if (raw_ == nullptr) return ncclSuccess;
  void* raw = std::exchange(raw_, nullptr);
  switch (side_) {
    case Side::send:
      return net_->closeSend(raw);
    case Side::recv:
      return net_->closeRecv(raw);
    case Side::listen:
      return net_->closeListen(raw);
  }
  return ncclInternalError;
}

Result<HostBuffer> HostBuffer::create(size_t bytes) {
  HostBuffer buffer;
  if (bytes == 0) return buffer;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return Error(Code::resources, "allocate", std::to_string(bytes) + " bytes", errno);
  buffer.data_ = data;
  buffer.bytes_ = bytes;
  return buffer;
}

void HostBuffer::populate(size_t from, size_t to) const {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t at = from / page * page; at < std::min(to, bytes_); at += page) {
    volatile std::byte& touched = data()[at];
    touched = touched;
  }
}

Result<Registration> Registration::create(const Comm& comm, std::span<std::byte> memory) {
  Registration registration;
  void* mhandle = nullptr;
  TRY(check(comm.net().regMr(comm.raw(), memory.data(), memory.size(), &mhandle), Call::regMr,
            std::to_string(memory.size()) + " bytes of host memory"));
  registration.net_ = &comm.net();
  registration.comm_ = comm.raw();
  registration.mhandle_ = mhandle;
  return registration;
}

Registration& Registration::operator=(Registration&& other) noexcept {
  std::swap(net_, other.net_);
  std::swap(comm_, other.comm_);
  std::swap(mhandle_, other.mhandle_);
  return *this;
}

ncclResult_t Registration::release() {
  if (mhandle_ == nullptr) return ncclSuccess;
  return net_->deregMr(comm_, std::exchange(mhandle_, nullptr));
}

Result<Listener> listen(const Context& context, int device) {
  Listener listener;
  void* raw = nullptr;
  Net& net = context.net();
  TRY(check(net.listen(context.raw(), device, listener.handle.data(), &raw), Call::listen,
            "device " + std::to_string(device)));
  listener.comm = Comm(net, Side::listen, raw);
  return listener;
}

Result<Ends> connectEnds(const Context& context, int device, const Handle* peer, Listener listener,
                         Milliseconds timeout) {
  Net& net = context.net();
  const bool accepts = static_cast<bool>(listener.comm);
  Handle handle = peer != nullptr ? *peer : Handle{};  // the plugin may keep its state in it
  void* send = nullptr;
  void* recv = nullptr;
  const auto connecting = [&] { return peer != nullptr && send == nullptr; };
  const auto accepting = [&] { return accepts && recv == nullptr; };
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  Status failed;
  while (failed && (connecting() || accepting())) {
    net.setNetAttr(context.raw(), 1, 1);
    if (connecting())
      failed = check(net.connect(context.raw(), device, handle.data(), &send), Call::connect, "a peer");
    if (failed && accepting()) failed = check(net.accept(listener.comm.raw(), &recv), Call::accept, "a peer");
    if (recv != nullptr) listener.comm.close();
    if (failed && std::chrono::steady_clock::now() > deadline)
      failed = Error(Code::timeout, "connect", connecting() ? "a peer does not accept" : "no peer connects");
    std::this_thread::yield();
  }
  Ends ends{Comm(net, Side::send, send), Comm(net, Side::recv, recv)};
  if (!failed) return failed.takeError();
  return ends;
}

Result<Ends> connectBoth(const Context& context, int device, Handle peer, Listener listener,
                         Milliseconds timeout) {
  return connectEnds(context, device, &peer, std::move(listener), timeout);
}

}  // namespace weft::netdriver
