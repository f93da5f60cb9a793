// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plain_sockets/comm.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>

#include "tools/plain_sockets/log.h"

namespace weft::baseline {

namespace {

// Of one system call: more leaves the caches before the other side has taken it.
constexpr size_t kMostAtOnce = size_t{512} << 10;

}  // namespace

Comm::Comm(Fd socket) : socket_(std::move(socket)) {}

Request* Comm::start(void* data, size_t size) {
  if (started_ - reported_ == kMostRequests) return nullptr;
  Request& request = at(started_++);
  request = {this, static_cast<std::byte*>(data), size};
  return &request;
}

ncclResult_t Comm::test(Request* request, int* done, int* size) {
  const auto place = static_cast<size_t>(request - requests_.data());
  const uint64_t number = reported_ + (place - reported_ % kMostRequests + kMostRequests) % kMostRequests;
  *done = 0;
  if (number >= finished_) {
    const ncclResult_t result = move();
    if (result != ncclSuccess) return result;
    if (number >= finished_) return ncclSuccess;
  }
  *done = 1;
  if (size != nullptr) *size = static_cast<int>(request->size);
  reported_ = number + 1;
  return ncclSuccess;
}

ncclResult_t Comm::outcome(const char* call) const {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return ncclSuccess;
  return complain(ncclRemoteError, "%s: %s", call, std::strerror(errno));
}

ncclResult_t SendComm::send(void* data, size_t size, Request** request) {
  const bool alone = idle();
  *request = start(data, size);
  if (*request == nullptr) return ncclSuccess;
  headers_[(started_ - 1) % kMostRequests].size = size;
  return alone ? move() : ncclSuccess;
}

// Sends all that has not been sent, in one call.
ncclResult_t SendComm::move() {
  std::array<iovec, kMostRequests> pieces;
  const size_t count = gather(&pieces);
  if (count == 0) return ncclSuccess;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  const ssize_t bytes = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (bytes < 0) return outcome("sendmsg");
  advance(static_cast<size_t>(bytes));
  return ncclSuccess;
}

size_t SendComm::gather(std::array<iovec, kMostRequests>* pieces) {
  size_t count = 0;
  size_t skip = sent_;
  size_t room = kMostAtOnce;
  for (uint64_t number = finished_; number < started_ && room > 0 && count + 2 <= pieces->size(); ++number) {
    auto* header = reinterpret_cast<std::byte*>(&headers_[number % kMostRequests]);
    const Request& request = at(number);
    if (skip < sizeof(Header)) (*pieces)[count++] = {header + skip, sizeof(Header) - skip};
    const size_t from = skip - std::min(skip, sizeof(Header));
    const size_t part = std::min(request.size - from, room);
    if (part > 0) (*pieces)[count++] = {request.data + from, part};
    if (from + part < request.size) break;
    room -= part;
    skip = 0;
  }
  return count;
}

void SendComm::advance(size_t bytes) {
  sent_ += bytes;
  while (finished_ < started_) {
    const size_t whole = sizeof(Header) + at(finished_).size;
    if (sent_ < whole) return;
    sent_ -= whole;
    ++finished_;
  }
}

// Makes one system call at most: what it brings finishes as many receives as it can.
ncclResult_t RecvComm::move() {
  const uint64_t before = finished_;
  ncclResult_t result = takeFromAhead();
  if (result != ncclSuccess || finished_ != before) return result;
  result = readMore();
  return result != ncclSuccess ? result : takeFromAhead();
}

ncclResult_t RecvComm::takeFromAhead() {
  while (finished_ < started_) {
    if (!inMessage_) {
      if (aheadBytes() < sizeof(Header)) return ncclSuccess;
      const ncclResult_t result = begin();
      if (result != ncclSuccess) return result;
    }
    Request& request = at(finished_);
    const auto bytes = std::min<size_t>(size_ - got_, aheadBytes());
    if (bytes > 0) std::memcpy(request.data + got_, ahead_.data() + begin_, bytes);
    begin_ += bytes;
    got_ += bytes;
    if (got_ < size_) return ncclSuccess;
    request.size = size_;
    inMessage_ = false;
    ++finished_;
  }
  return ncclSuccess;
}

ncclResult_t RecvComm::begin() {
  std::memcpy(&size_, ahead_.data() + begin_, sizeof size_);
  begin_ += sizeof(Header);
  got_ = 0;
  inMessage_ = true;
  if (size_ <= at(finished_).size) return ncclSuccess;
  return complain(ncclInvalidUsage, "%llu bytes were sent into a receive of %zu",
                  static_cast<unsigned long long>(size_), at(finished_).size);
}

// The rest of the message goes where it belongs, what is behind it is kept.
ncclResult_t RecvComm::readMore() {
  if (begin_ != 0) std::memmove(ahead_.data(), ahead_.data() + begin_, aheadBytes());
  end_ -= begin_;
  begin_ = 0;
  const size_t missing = inMessage_ ? size_ - got_ : 0;
  iovec pieces[2] = {{missing > 0 ? at(finished_).data + got_ : nullptr, missing},
                     {ahead_.data() + end_, kAheadBytes - end_}};
  msghdr message{};
  message.msg_iov = missing > 0 ? pieces : pieces + 1;
  message.msg_iovlen = missing > 0 ? 2 : 1;
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  if (got == 0) return complain(ncclRemoteError, "the other side has closed the connection");
  if (got < 0) return outcome("recvmsg");
  const auto bytes = static_cast<size_t>(got);
  const size_t placed = std::min(bytes, missing);
  got_ += placed;
  end_ += bytes - placed;
  return ncclSuccess;
}

}  // namespace weft::baseline
