// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/workload.h"

#include <algorithm>

#include <fmt/format.h>

namespace weft::perf {

namespace {

// A stretch of the output and the data that must be there, from an element of it onwards.
struct Expected {
  size_t begin;
  size_t count;
  Pattern pattern;
  size_t from;
};

Expected reducedPart(const Case& c, uint64_t number) {
  const bool scattered = c.operation->movement == Movement::reduceScatter;
  const size_t from = scattered ? static_cast<size_t>(c.rank) * c.part : 0;
  return {0, c.outputCount(), Pattern::reduced(*c.type, c.op, c.size, number, from + c.outputCount()), from};
}

Expected wholeOf(const Case& c, int rank, uint64_t number) {
  return {0, c.total, Pattern::ofRank(*c.type, c.op, {rank, c.size}, number, c.total), 0};
}

std::vector<Expected> partsOfAll(const Case& c, uint64_t number) {
  const bool personal = c.operation->movement == Movement::allToAll;
  const size_t from = personal ? static_cast<size_t>(c.rank) * c.part : 0;
  std::vector<Expected> parts;
  for (int r = 0; r < c.size; ++r)
    parts.push_back({static_cast<size_t>(r) * c.part, c.part,
                     Pattern::ofRank(*c.type, c.op, {r, c.size}, number, from + c.part), from});
  return parts;
}

std::vector<Expected> expectedOutput(const Case& c, uint64_t number) {
  std::vector<Expected> parts;
  switch (c.operation->movement) {
    case Movement::allReduce:
    case Movement::reduceScatter:
      parts.push_back(reducedPart(c, number));
      break;
    case Movement::broadcast:
      parts.push_back(wholeOf(c, c.root, number));
      break;
    case Movement::sendRecv:
      parts.push_back(wholeOf(c, (c.rank + c.size - 1) % c.size, number));
      break;
    case Movement::pingPong:
    case Movement::putSignal:
    case Movement::get:
      parts.push_back(wholeOf(c, c.rank ^ 1, number));
      break;
    case Movement::messageRate:
    case Movement::put:
      if (c.rank % 2 != 0) parts.push_back(wholeOf(c, c.rank - 1, number));
      break;
    case Movement::allGather:
    case Movement::allToAll:
      return partsOfAll(c, number);
  }
  return parts;
}

}  // namespace

void Case::setBytes(uint64_t bytes) {
  total = bytes / type->bytes;
  part = total / static_cast<size_t>(size);
  if (operation->inParts) total = part * static_cast<size_t>(size);
}

Result<Workload> Workload::create(size_t bytes) {
  Workload workload;
  TRY(workload.first_, netdriver::HostBuffer::create(bytes));
  TRY(workload.second_, netdriver::HostBuffer::create(bytes));
  return workload;
}

void Workload::prepare(size_t bytes) {
  for (const netdriver::HostBuffer* buffer : {&first_, &second_}) buffer->populate(prepared_, bytes);
  prepared_ = std::max(prepared_, bytes);
}

size_t Workload::slots(const Case& c) const {
  return std::max<size_t>(1, first_.size() / std::max<uint64_t>(1, c.bytes()));
}

// In place, input and output share the first buffer: the part of this rank where one of them is a part.
std::byte* Workload::input(const Case& c, size_t slot) const {
  std::byte* begin = first_.data() + slot * c.bytes();
  const bool own = c.inPlace && c.operation->movement == Movement::allGather;
  return begin + (own ? static_cast<size_t>(c.rank) * c.part * c.type->bytes : 0);
}

std::byte* Workload::output(const Case& c, size_t slot) const {
  if (!c.inPlace) return second_.data() + slot * c.bytes();
  const bool own = c.operation->movement == Movement::reduceScatter;
  return first_.data() + slot * c.bytes() + (own ? static_cast<size_t>(c.rank) * c.part * c.type->bytes : 0);
}

Work Workload::work(const Case& c, size_t slot, size_t begin, size_t count) const {
  const size_t offset = begin * c.type->bytes;
  return {input(c, slot) + offset, output(c, slot) + offset, count, c.part, c.type, c.op, c.root};
}

void Workload::fillInput(const Case& c, size_t slot, uint64_t number) const {
  const size_t count = c.inputCount();
  Pattern::ofRank(*c.type, c.op, {c.rank, c.size}, number, count)
      .fill({input(c, slot), count * c.type->bytes});
}

uint64_t Workload::countWrong(const Case& c, size_t slot, uint64_t number, bool describe) const {
  uint64_t wrong = 0;
  for (const Expected& part : expectedOutput(c, number)) {
    const std::span<const std::byte> data(output(c, slot) + part.begin * c.type->bytes,
                                          part.count * c.type->bytes);
    const uint64_t found = part.pattern.countWrong(data, part.from);
    if (found != 0 && wrong == 0 && describe)
      fmt::print(stderr, "{} wrong elements at {} bytes of {} from element {} on: {}\n", found, c.bytes(),
                 c.type->name, part.begin, part.pattern.describeFirstWrong(data, part.from));
    wrong += found;
  }
  return wrong;
}

}  // namespace weft::perf
