// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/soak/flow.h"

#include <algorithm>

namespace weft::soak {

using netdriver::Call;

namespace {

// What a dead peer or a broken fabric may be reported as. Everything else would blame the caller, or weft.
bool blamesTheFabric(ncclResult_t result) {
  return result == ncclRemoteError || result == ncclSystemError;
}

}  // namespace

void Flow::step() {
  if (over()) return;
  failure_ = registration_.mhandle() == nullptr ? ncclSystemError : advance();
  if (!failed()) return;
  run_.expect(blamesTheFabric(failure_),
              std::string("a comm failed with ") + netdriver::resultName(failure_));
  if (registration_.mhandle() != nullptr)
    run_.expect(again() != ncclSuccess, "a comm that failed works again");
}

void Flow::close() {
  run_.expect(registration_.release() == ncclSuccess, "deregMr failed");
  run_.expect(comm_.close() == ncclSuccess, "closing failed");
}

bool Flow::registerRows(size_t rows, size_t rowBytes) {
  rowBytes_ = rowBytes;
  buffer_ = run_.need(HostBuffer::create(rows * rowBytes));
  auto registered = Registration::create(comm_, buffer_.span());
  if (registered) registration_ = registered.take();
  return registration_.mhandle() != nullptr;
}

RecvFlow::RecvFlow(Run& run, Comm comm, Traffic drawn) : Flow(run, std::move(comm), std::move(drawn)) {
  registerRows(kRows, traffic().rowBytes);
}

netdriver::RecvArgs RecvFlow::arguments(const Group& group, size_t row) const {
  netdriver::RecvArgs args;
  args.n = static_cast<int>(group.parts.size());
  for (size_t i = 0; i < group.parts.size(); ++i) {
    args.data[i] = this->row(row) + group.parts[i].offset;
    args.sizes[i] = group.parts[i].room;
    args.tags[i] = group.parts[i].tag;
    args.mhandles[i] = registration_.mhandle();
  }
  return args;
}

size_t RecvFlow::freeRow() const {
  size_t row = 0;
  const auto used = [&](const Posted& posted) { return posted.row == row; };
  while (std::any_of(posted_.begin(), posted_.end(), used)) ++row;
  return row;
}

ncclResult_t RecvFlow::postNext() {
  if (nextGroup_ == traffic().groups.size() || posted_.size() == kRows) return ncclSuccess;
  Posted next{nextGroup_, freeRow(), nullptr};
  std::fill_n(row(next.row), rowBytes(), system::kUntouched);
  const auto args = arguments(traffic().groups[nextGroup_], next.row);
  const ncclResult_t result = net().irecv(comm_.raw(), args, &next.request);
  if (result != ncclSuccess || next.request == nullptr) return result;
  ++nextGroup_;
  posted_.push_back(next);
  return ncclSuccess;
}

ncclResult_t RecvFlow::advance() {
  if (const ncclResult_t result = postNext(); result != ncclSuccess) return result;
  for (size_t i = 0; i < posted_.size();) {
    int done = 0;
    std::array<int, 64> sizes{};
    const ncclResult_t result = net().test(posted_[i].request, &done, sizes.data());
    if (result != ncclSuccess) return result;
    if (done == 0) {
      ++i;
      continue;
    }
    system::Sizes got{};
    std::copy_n(sizes.begin(), got.size(), got.begin());
    verify(posted_[i], got);
    posted_.erase(posted_.begin() + static_cast<std::ptrdiff_t>(i));
    ++groupsDone_;
  }
  return ncclSuccess;
}

ncclResult_t RecvFlow::again() {
  const Group& group = traffic().groups.front();
  void* request = nullptr;
  return net().irecv(comm_.raw(), arguments(group, 0), &request);
}

void RecvFlow::verify(const Posted& posted, const system::Sizes& sizes) {
  const Group& group = traffic().groups[posted.group];
  for (size_t i = 0; i < group.parts.size(); ++i) {
    const Message& message = group.parts[i];
    run_.expect(sizes[i] == static_cast<int>(message.bytes),
                "size " + std::to_string(sizes[i]) + " of " + std::to_string(message.bytes));
    const int64_t at =
        system::firstDifference({row(posted.row) + message.offset, message.bytes}, message.seed);
    run_.expect(at < 0, std::to_string(message.bytes) + " bytes: wrong from byte " + std::to_string(at));
    run_.count("messages");
  }
  verifyUnused(posted);
}

// Not a byte before, between and behind the messages.
void RecvFlow::verifyUnused(const Posted& posted) {
  size_t at = 0;
  for (const Message& message : traffic().groups[posted.group].parts) {
    run_.expect(system::isUntouched({row(posted.row) + at, message.offset - at}), "wrote outside a receive");
    at = message.offset + message.bytes;
  }
  run_.expect(system::isUntouched({row(posted.row) + at, rowBytes() - at}), "wrote behind a message");
}

SendFlow::SendFlow(Run& run, Comm comm, Traffic drawn, uint64_t seed)
    : Flow(run, std::move(comm), std::move(drawn)), random_(seed) {
  for (const Group& group : traffic().groups)
    waiting_.insert(waiting_.end(), group.parts.begin(), group.parts.end());
  registerRows(kRows, std::max<size_t>(traffic().mostBytes, 1));
}

size_t SendFlow::pick() {
  size_t which = random_.below(std::min(waiting_.size(), kLookAhead));
  for (size_t i = 0; i < which; ++i)
    if (waiting_[i].tag == waiting_[which].tag) which = i;
  return which;
}

size_t SendFlow::freeRow() const {
  size_t row = 0;
  const auto used = [&](const Sending& sending) { return sending.row == row; };
  while (std::any_of(sending_.begin(), sending_.end(), used)) ++row;
  return row;
}

ncclResult_t SendFlow::post(size_t which) {
  const Message& message = waiting_[which];
  Sending next{freeRow(), nullptr};
  system::fill({row(next.row), message.bytes}, message.seed);
  const ncclResult_t result = net().isend(
      comm_.raw(), {row(next.row), message.bytes, message.tag, registration_.mhandle()}, &next.request);
  if (result != ncclSuccess || next.request == nullptr) return result;
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(which));
  sending_.push_back(next);
  return ncclSuccess;
}

ncclResult_t SendFlow::testAll() {
  for (size_t i = 0; i < sending_.size();) {
    int done = 0;
    const ncclResult_t result = net().test(sending_[i].request, &done, nullptr);
    if (result != ncclSuccess) return result;
    if (done == 0) {
      ++i;
      continue;
    }
    // The buffer is ours again: what still reads it would send this.
    std::fill_n(row(sending_[i].row), rowBytes(), std::byte{0xee});
    sending_.erase(sending_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return ncclSuccess;
}

ncclResult_t SendFlow::advance() {
  if (!waiting_.empty() && sending_.size() < kRows)
    if (const ncclResult_t result = post(pick()); result != ncclSuccess) return result;
  return testAll();
}

ncclResult_t SendFlow::again() {
  void* request = nullptr;
  return net().isend(comm_.raw(), {row(0), 0, 0, registration_.mhandle()}, &request);
}

}  // namespace weft::soak
