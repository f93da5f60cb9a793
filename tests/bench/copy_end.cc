// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/bench/copy_end.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace weft::bench {

namespace {

void need(bool good, const char* what) {
  if (!good) die(std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

CopyEnd::Shared::Shared(size_t lanes, size_t sinkBytes)
    : file(::memfd_create("bench", MFD_CLOEXEC)), sinkAt(lanes * sizeof(Lane)), bytes(sinkAt + sinkBytes) {
  need(file && ::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0, "memfd_create");
  map();
  std::memset(at, 0, bytes);
}

CopyEnd::Shared::Shared(pid_t pid, int fd, size_t lanes, size_t sinkBytes)
    : sinkAt(lanes * sizeof(Lane)), bytes(sinkAt + sinkBytes) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  file = Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  need(static_cast<bool>(file), "opening the other process's memory");
  map();
}

void CopyEnd::Shared::map() {
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  need(mapped != MAP_FAILED, "mmap");
  at = static_cast<std::byte*>(mapped);
}

CopyEnd::CopyEnd(CopyStyle style, const Shape& shape, const Companion& companion)
    : End(shape), style_(style) {
  source_ = must(netdriver::HostBuffer::create(areasFor(outgoing()) * kAreaBytes));
  private_ = must(netdriver::HostBuffer::create(areasFor(incoming()) * kAreaBytes));
  std::memset(source_.data(), 1, source_.size());
  std::memset(private_.data(), 2, private_.size());
  mine_ = std::make_unique<Shared>(incoming(), areasFor(incoming()) * kAreaBytes);
  const int here[2] = {::getpid(), mine_->file.get()};
  companion.put(std::as_bytes(std::span(here)));
  int there[2];
  const Bytes told = companion.get();
  std::memcpy(there, told.data(), std::min(told.size(), sizeof there));
  theirs_ = std::make_unique<Shared>(there[0], there[1], outgoing(), areasFor(outgoing()) * kAreaBytes);
  sending_.resize(outgoing());
  receiving_.resize(incoming());
  companion.putText("mapped");
  (void)companion.getText();
}

std::string CopyEnd::describe() const {
  return style_ == CopyStyle::once ? "memcpy into the receiver's shared memory"
                                   : "memcpy into a ring in shared memory and out of it";
}

bool CopyEnd::send(size_t channel, size_t bytes) {
  Progress& sending = sending_[channel];
  const bool idle = out_[channel].started == out_[channel].finished;
  if (!idle && bytes != sending.bytes) return false;
  sending.bytes = bytes;
  if (style_ == CopyStyle::once) {
    const size_t place = areaOf(channel) + placeOf(out_[channel].started, bytes);
    std::memcpy(theirs_->sink() + place, source_.data() + place, bytes);
    theirs_->lane(channel).written.store(++sending.written, std::memory_order_release);
  }
  out_[channel].started++;
  if (style_ == CopyStyle::twice) pushOut(channel);
  return true;
}

void CopyEnd::pushOut(size_t channel) {
  Lane& lane = theirs_->lane(channel);
  Progress& sending = sending_[channel];
  Counters& out = out_[channel];
  if (style_ == CopyStyle::once) {
    out.finished = lane.taken.load(std::memory_order_acquire);
    return;
  }
  while (out.finished < out.started) {
    const uint64_t free = kRing - (sending.written - lane.taken.load(std::memory_order_acquire));
    const size_t at = sending.written % kRing;
    const size_t piece = std::min({sending.bytes - sending.done, kPiece, free, kRing - at});
    if (piece == 0) return;
    std::memcpy(lane.ring + at,
                source_.data() + areaOf(channel) + placeOf(out.finished, sending.bytes) + sending.done,
                piece);
    sending.written += piece;
    lane.written.store(sending.written, std::memory_order_release);
    sending.done += piece;
    if (sending.done < sending.bytes) continue;
    sending.done = 0;
    out.finished++;
  }
}

void CopyEnd::pullIn(size_t channel) {
  Lane& lane = mine_->lane(channel);
  Progress& receiving = receiving_[channel];
  Counters& in = in_[channel];
  const uint64_t written = lane.written.load(std::memory_order_acquire);
  if (style_ == CopyStyle::once) {
    in.finished = written;
    if (receiving.taken != written) lane.taken.store(receiving.taken = written, std::memory_order_release);
    return;
  }
  while (receiving.taken < written && in.finished < in.expected) {
    const size_t at = receiving.taken % kRing;
    const size_t piece = std::min({in.bytes - receiving.done, kPiece, written - receiving.taken, kRing - at});
    std::memcpy(private_.data() + areaOf(channel) + placeOf(in.finished, in.bytes) + receiving.done,
                lane.ring + at, piece);
    receiving.taken += piece;
    lane.taken.store(receiving.taken, std::memory_order_release);
    receiving.done += piece;
    if (receiving.done < in.bytes) continue;
    receiving.done = 0;
    in.finished++;
  }
}

void CopyEnd::poll() {
  for (size_t i = 0; i < std::min(active_, out_.size()); i++)
    if (out_[i].finished < out_[i].started) pushOut(i);
  for (size_t i = 0; i < std::min(active_, in_.size()); i++)
    if (in_[i].finished < in_[i].expected) pullIn(i);
}

}  // namespace weft::bench
