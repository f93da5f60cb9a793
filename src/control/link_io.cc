// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/link_io.h"

#include <cerrno>
#include <cstring>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

// Buffers and frames of a connection.
namespace weft::control {

namespace {

constexpr size_t kReadAtOnce = 256 * 1024;  // bytes in a turn: a busy link must not starve the others
constexpr size_t kFirstBuffer = 16 * 1024;

}  // namespace

LinkIo::LinkIo(EventLoop& loop, SealedSocket socket, Report report)
    : report_(std::move(report)),
      socket_(std::move(socket.fd)),
      seal_(socket.seal),
      watch_(loop, [this](uint32_t events) { onEvent(events); }) {}

Status LinkIo::start() {
  in_.resize(kFirstBuffer);
  return watch_.start(socket_.get(), EPOLLIN);
}

void LinkIo::close() {
  watch_.stop();
  cut(socket_);
}

void LinkIo::write(const FrameHeader& header, std::span<const std::byte> body) {
  seal_.append(header, body, out_);
}

// Writes what the socket takes; EPOLLOUT is asked for as long as something is left.
void LinkIo::flush() {
  while (!closed() && queued() > 0) {
    const IoResult sent = sendSome(socket_.get(), std::span(out_).subspan(written_));
    if (sent.io == Io::again) return watch_.want(EPOLLIN | EPOLLOUT);
    if (sent.io == Io::closed)
      return watch_.want(EPOLLIN | EPOLLOUT);  // the next event reports the end, not this call
    written_ += sent.bytes;
  }
  out_.clear();
  written_ = 0;
  watch_.want(EPOLLIN);
}

void LinkIo::endWriting() {
  if (!closed()) (void)shutdown(socket_.get(), SHUT_WR);
}

void LinkIo::onEvent(uint32_t events) {
  if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) readFrames();
  if (closed() || !(events & EPOLLOUT)) return;
  flush();
  if (!closed() && queued() == 0) report_(RoomIsThere{});
}

void LinkIo::readFrames() {
  for (size_t total = 0; total < kReadAtOnce && !closed();) {
    const IoResult got = receiveSome(socket_.get(), std::span(in_).subspan(inEnd_));
    if (got.io == Io::again) return;
    if (got.io == Io::closed) return lost(got.error);
    inEnd_ += got.bytes;
    total += got.bytes;
    const bool filled = inEnd_ == in_.size();
    if (!parse()) return;
    if (!filled) return;  // the socket is empty; the next event says when it is not
  }
}

// Hands over every whole frame. False: the connection was closed meanwhile. Bytes that the peer did not seal
// are not its words, so they end the connection, and not the link.
bool LinkIo::parse() {
  size_t at = 0;
  size_t need = 0;
  while (!closed() && inEnd_ - at >= kFrameHeaderBytes) {
    const auto rest = std::span<std::byte>(in_).subspan(at, inEnd_ - at);
    const auto length = bodyLengthOf(rest.first(kLengthBytes));
    if (!length) return refuse("a frame header that is none");
    need = seal_.recordBytes(*length);
    if (rest.size() < need) break;
    if (!handOver(rest.first(need))) return false;
    at += need;
    need = 0;
  }
  if (closed()) return false;
  // The rest of a frame moves to the front; a frame longer than the buffer makes the buffer grow, by at most
  // kMaxFrameBody.
  std::memmove(in_.data(), in_.data() + at, inEnd_ - at);
  inEnd_ -= at;
  if (need > in_.size()) in_.resize(need);
  return true;
}

bool LinkIo::handOver(std::span<std::byte> record) {
  const auto frame = seal_.open(record);
  if (!frame) return refuse("a frame that it did not seal");
  const auto header = decodeFrameHeader(frame->first(kFrameHeaderBytes));
  if (!header) {
    report_(NonsenseCame{"a frame header that is none"});
    return false;
  }
  report_(FrameCame{*header, frame->subspan(kFrameHeaderBytes)});
  return true;
}

// In clear nobody can tell whose bytes these are.
bool LinkIo::refuse(const char* what) {
  if (seal_.inClear())
    report_(NonsenseCame{what});
  else
    report_(ConnectionLost{std::string("something changed the bytes on their way: ") + what, false});
  return false;
}

// A time-out, an unreachable host and an interface that is down are found by this host alone.
bool isSignOfHost(int error) {
  return error == 0 || error == ECONNRESET;
}

void LinkIo::lost(int error) {
  std::string why = error == 0 ? "closed without a goodbye"
                               : Error(Code::system, "the connection broke", "", error).message();
  report_(ConnectionLost{std::move(why), isSignOfHost(error)});
}

}  // namespace weft::control
