// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/coll_data.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/trace/show/print.h"

namespace weft::replay {

namespace {

using trace::Kind;
namespace at = trace::at;

// By the numbers of ncclDataType_t.
constexpr const char* kTypes[] = {"int8",   "uint8", "int32", "uint32", "int64",
                                  "uint64", "half",  "float", "double", "bfloat16"};
constexpr const char* kBytes = "int8";  // of a gather

}  // namespace

Result<CollData> CollData::of(const Op& op, int rank, int ranks) {
  const trace::Event& event = *op.event;
  CollData data;
  data.kind_ = event.kind;
  data.rank_ = rank;
  data.ranks_ = ranks;
  data.number_ = op.messages.front().number;
  const bool gathers = event.kind == Kind::iallgather;
  const uint64_t type = gathers ? 0 : event[at::kElementType];
  const uint64_t reduction = gathers ? 0 : event[at::kOp];
  if (type >= std::size(kTypes) || reduction > static_cast<uint64_t>(perf::RedOp::min))
    return Error(Code::invalidArgument, "replay",
                 "type or reduction is none that can be verified: " + trace::describe(event));
  TRY(const auto types, perf::parseTypes(gathers ? kBytes : kTypes[type]));
  data.type_ = types.front();
  data.op_ = static_cast<perf::RedOp>(reduction);
  data.bytes_ = event.parts[0].size;
  if (event.kind == Kind::iallreduce) return data;
  const size_t window = gathers ? at::kGatherWindow : at::kScatterWindow;
  data.bytesPerRank_ = event[window];
  data.windowBegin_ = event[window + 1];
  data.bytes_ = event[window + 2];
  size_t parts = 0;
  for (size_t i = 1; i < event.parts.size(); ++i) parts += event.parts[i].size;
  if (parts == data.bytes_) return data;
  return Error(Code::invalidArgument, "replay",
               "the parts are not as long as the window: " + trace::describe(event));
}

Stretch CollData::partOf(int rank) const {
  const size_t end = windowBegin_ + bytes_;
  const size_t first = static_cast<size_t>(rank) * bytesPerRank_;
  const size_t from = std::clamp(first, windowBegin_, end);
  const size_t to = std::clamp(first + bytesPerRank_, windowBegin_, end);
  return {from - windowBegin_, to - from};
}

size_t CollData::sendBytes() const {
  return kind_ == Kind::iallgather ? partOf(rank_).bytes : bytes_;
}

size_t CollData::receiveBytes() const {
  return kind_ == Kind::ireducescatter ? partOf(rank_).bytes : bytes_;
}

std::vector<std::byte> CollData::sent() const {
  std::vector<std::byte> bytes(sendBytes());
  perf::Pattern::ofRank(*type_, op_, contributor(rank_), number_).fill(bytes);
  return bytes;
}

std::optional<std::string> CollData::wrong(std::span<const std::byte> received) const {
  if (kind_ != Kind::iallgather) {
    const size_t first = kind_ == Kind::ireducescatter ? partOf(rank_).begin / type_->bytes : 0;
    const auto want = perf::Pattern::reduced(*type_, op_, ranks_, number_);
    if (want.countWrong(received, first) == 0) return std::nullopt;
    return want.describeFirstWrong(received, first);
  }
  for (int from = 0; from < ranks_; ++from) {
    const Stretch part = partOf(from);
    const auto want = perf::Pattern::ofRank(*type_, op_, contributor(from), number_);
    const auto got = received.subspan(part.begin, part.bytes);
    if (want.countWrong(got) > 0) return fmt::format("of rank {}: {}", from, want.describeFirstWrong(got));
  }
  return std::nullopt;
}

}  // namespace weft::replay
