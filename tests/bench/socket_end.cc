// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/bench/socket_end.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace weft::bench {

namespace {

void need(bool good, const char* what) {
  if (!good) die(std::string(what) + ": " + std::strerror(errno));
}

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

Fd newSocket() {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  need(static_cast<bool>(fd), "socket");
  return fd;
}

}  // namespace

SocketEnd::SocketEnd(const Shape& shape, const Companion& companion) : End(shape) {
  source_ = must(netdriver::HostBuffer::create(areasFor(outgoing()) * kAreaBytes));
  sink_ = must(netdriver::HostBuffer::create(areasFor(incoming()) * kAreaBytes));
  std::memset(source_.data(), 1, source_.size());
  std::memset(sink_.data(), 2, sink_.size());
  channels_.resize(std::max(outgoing(), incoming()));
  meet(companion);
}

void SocketEnd::meet(const Companion& companion) {
  const Fd listener = newSocket();
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (companion.first()) {
    need(::bind(listener.get(), raw, length) == 0, "bind");
    need(::listen(listener.get(), 64) == 0, "listen");
    need(::getsockname(listener.get(), raw, &length) == 0, "getsockname");
    companion.put(std::as_bytes(std::span(&address, 1)));
  } else {
    const Bytes there = companion.get();
    std::memcpy(&address, there.data(), std::min(there.size(), sizeof address));
  }
  for (Channel& channel : channels_) {
    if (companion.first()) {
      channel.fd = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      need(static_cast<bool>(channel.fd), "accept");
    } else {
      channel.fd = newSocket();
      need(::connect(channel.fd.get(), raw, length) == 0, "connect");
    }
    const int on = 1;
    (void)::setsockopt(channel.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
}

size_t SocketEnd::parts(Transfer& transfer, std::byte* data, size_t bytes, iovec* out) {
  constexpr size_t kPrefix = sizeof transfer.prefix;
  size_t count = 0;
  if (transfer.done < kPrefix)
    out[count++] = {reinterpret_cast<std::byte*>(transfer.prefix.data()) + transfer.done,
                    kPrefix - transfer.done};
  const size_t skip = transfer.done > kPrefix ? transfer.done - kPrefix : 0;
  if (skip < bytes) out[count++] = {data + skip, bytes - skip};
  return count;
}

bool SocketEnd::send(size_t index, size_t bytes) {
  Channel& channel = channels_[index];
  const bool idle = out_[index].started == out_[index].finished;
  if (!idle && bytes != channel.bytes) return false;
  channel.bytes = bytes;
  out_[index].started++;
  if (idle) pushOut(index);
  return true;
}

void SocketEnd::pushOut(size_t index) {
  Channel& channel = channels_[index];
  std::byte* data = source_.data() + areaOf(index) + placeOf(out_[index].finished, channel.bytes);
  channel.sending.prefix[0] = channel.bytes;
  std::array<iovec, 2> pieces;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = parts(channel.sending, data, channel.bytes, pieces.data());
  const ssize_t sent = ::sendmsg(channel.fd.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  need(sent >= 0 || errno == EAGAIN, "sendmsg");
  if (sent > 0) channel.sending.done += static_cast<size_t>(sent);
  if (channel.sending.done < channel.bytes + sizeof channel.sending.prefix) return;
  channel.sending.done = 0;
  out_[index].finished++;
}

void SocketEnd::pullIn(size_t index) {
  Channel& channel = channels_[index];
  Counters& in = in_[index];
  std::byte* data = sink_.data() + areaOf(index) + placeOf(in.finished, in.bytes);
  std::array<iovec, 2> pieces;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = parts(channel.receiving, data, in.bytes, pieces.data());
  const ssize_t got = ::recvmsg(channel.fd.get(), &message, MSG_DONTWAIT);
  need(got > 0 || (got < 0 && errno == EAGAIN), "recvmsg");
  if (got > 0) channel.receiving.done += static_cast<size_t>(got);
  if (channel.receiving.done < in.bytes + sizeof channel.receiving.prefix) return;
  if (channel.receiving.prefix[0] != in.bytes) die("a message of another size came");
  channel.receiving.done = 0;
  in.finished++;
}

void SocketEnd::poll() {
  for (size_t i = 0; i < std::min(active_, out_.size()); i++)
    if (out_[i].finished < out_[i].started) pushOut(i);
  for (size_t i = 0; i < std::min(active_, in_.size()); i++)
    if (in_[i].finished < in_[i].expected) pullIn(i);
}

}  // namespace weft::bench
