// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/endpoint.h"

#include <algorithm>
#include <cerrno>

#include "providers/common/keyed_memory.h"
#include "src/base/log.h"

namespace weft::tcp {

TcpEndpoint::TcpEndpoint(TcpQueue& queue, const LaneAddress& mine)
    : queue_(queue), mine_(mine), address_(encode(mine)) {}

TcpEndpoint::~TcpEndpoint() {
  for (const auto& stream : streams_) {
    stream->dropAll([this](Purpose purpose, uint64_t) {
      if (purpose <= Purpose::unsignaled) queue_.workGone();
    });
    queue_.forget(stream.get());
  }
  for (const Read& read : reads_)
    if (read.open) queue_.workGone();
  queue_.forget(this);
}

Result<RemoteMemory> TcpEndpoint::import(std::span<const std::byte> blob) {
  return decodeKeyedMemory(blob, kMemoryMagic);
}

size_t TcpEndpoint::post(std::span<const Work> works) {
  size_t taken = 0;
  Stream* filled = nullptr;
  while (taken < works.size() && state_ == State::ready && queue_.hasRoom()) {
    const Work& work = works[taken++];
    queue_.workPosted();
    const int error = faultOf(work, kMaxWriteBytes);
    if (error != 0) [[unlikely]] {
      reject(work, error);
      return taken;
    }
    Stream& stream = streamFor(work.op == Opcode::read ? 0 : work.length);
    if (filled && filled != &stream) send(*filled);
    filled = &stream;
    put(stream, work);
  }
  if (filled) send(*filled);
  return taken;
}

void TcpEndpoint::put(Stream& stream, const Work& work) {
  if (work.op == Opcode::read) return putRead(stream, work);
  Outgoing outgoing;
  outgoing.header.length = static_cast<uint32_t>(work.length);
  outgoing.header.kind = work.op == Opcode::write ? FrameKind::write : FrameKind::notify;
  outgoing.header.flags = work.delivered ? kWantsAck : uint8_t{0};
  outgoing.header.number = work.imm;
  outgoing.header.key = work.remote.key;
  outgoing.header.offset = work.remote.base + work.remoteOffset;
  outgoing.data = static_cast<const std::byte*>(work.local);
  outgoing.context = work.context;
  outgoing.purpose = work.unsignaled ? Purpose::unsignaled : Purpose::work;
  stream.push(outgoing);
}

void TcpEndpoint::putRead(Stream& stream, const Work& work) {
  if (freeReads_.empty()) {
    freeReads_.push_back(static_cast<uint32_t>(reads_.size()));
    reads_.emplace_back();
  }
  const uint32_t number = freeReads_.back();
  freeReads_.pop_back();
  const auto length = static_cast<uint32_t>(work.length);
  reads_[number] = {static_cast<std::byte*>(work.local), length, true, work.context};
  Outgoing request;
  request.header.length = length;
  request.header.kind = FrameKind::readRequest;
  request.header.number = number;
  request.header.key = work.remote.key;
  request.header.offset = work.remote.base + work.remoteOffset;
  request.context = number;
  request.purpose = Purpose::request;
  stream.push(request);
}

// The Work counts as taken, and as failed; the lane ends with it, as a queue pair does.
void TcpEndpoint::reject(const Work& work, int error) {
  const char* why = faultWords(error);
  failWork(work.context, error, why);
  failWorks(ECANCELED, why);
  closeStreams();
  state_ = State::dead;
}

// Small writes all go over the first stream, and wait for nothing but each other.
Stream& TcpEndpoint::streamFor(size_t length) {
  if (length < Stream::kBulkBytes) return *streams_.front();
  if (!asked_) wantStreams();
  if (bulk_.empty()) return *streams_.front();
  turn_ = turn_ + 1 < bulk_.size() ? turn_ + 1 : 0;
  return *bulk_[turn_];
}

void TcpEndpoint::send(Stream& stream) {
  stream.flush();
  if (stream.blocked()) queue_.flushLater(&stream);
}

void TcpEndpoint::notified(uint32_t imm, uint32_t length) {
  Completion completion;
  completion.kind = CompletionKind::notified;
  completion.imm = imm;
  completion.length = length;
  completion.source = this;
  queue_.report(completion);
}

void TcpEndpoint::workFinished(Purpose purpose, uint64_t context) {
  if (purpose == Purpose::unsignaled) return queue_.workGone();
  Completion completion;
  completion.context = context;
  completion.source = this;
  queue_.report(completion);
}

std::byte* TcpEndpoint::readInto(uint32_t number, uint32_t length) {
  if (number >= reads_.size()) return nullptr;
  const Read& read = reads_[number];
  return read.open && read.length == length ? read.into : nullptr;
}

void TcpEndpoint::readFinished(uint32_t number) {
  reads_[number].open = false;
  freeReads_.push_back(number);
  workFinished(Purpose::work, reads_[number].context);
}

std::string TcpEndpoint::named(const char* what, const std::string& why) const {
  return format("%s %s over tcp %s: %s", what, peerText_.empty() ? "the peer" : peerText_.c_str(),
                queue_.device().info().name.c_str(), why.c_str());
}

void TcpEndpoint::failWork(uint64_t context, int error, const std::string& why) {
  Completion completion = about(CompletionKind::sent, error);
  completion.context = context;
  queue_.reportAfter(completion, named("writing to or reading from", why));
}

void TcpEndpoint::failRead(uint64_t number, int error, const std::string& why) {
  Read& read = reads_[number];
  read.open = false;
  freeReads_.push_back(static_cast<uint32_t>(number));
  failWork(read.context, error, why);
}

// All that is not finished; how many there were.
size_t TcpEndpoint::failWorks(int error, const std::string& why) {
  size_t count = 0;
  for (const auto& stream : streams_) {
    stream->dropAll([&](Purpose purpose, uint64_t context) {
      if (purpose > Purpose::unsignaled) return;
      failWork(context, error, why);
      count++;
    });
  }
  for (size_t i = 0; i < reads_.size(); i++) {
    if (!reads_[i].open) continue;
    failRead(i, error, why);
    count++;
  }
  return count;
}

}  // namespace weft::tcp
