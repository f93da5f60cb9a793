// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/result.h"

// Element types and reductions on host memory, and test data whose reduction is exact in every type, so that
// results are compared bit by bit. Data repeats after a prime number of elements, so a piece that lands at a
// wrong place shows, and differs by rank and iteration, so a piece left over from earlier shows too. Pure
// functions; any thread.
namespace weft::perf {

enum class RedOp : uint8_t { sum, prod, max, min };

// Whose data it is. Values are chosen so that the reduction over all `size` ranks is exact, whatever the
// order.
struct Contributor {
  int rank = 0;
  int size = 1;
};

struct ElementType {
  const char* name;   // nccl-tests' name
  const char* alias;  // another that -d understands; may be the same
  size_t bytes;
  // target[i] = a[i] op b[i]; target may be a or b.
  void (*reduce)(RedOp op, std::byte* target, const std::byte* a, const std::byte* b, size_t count);
  // The first elements of the data of a rank in an iteration, as many as `target` has room for.
  void (*pattern)(RedOp op, std::span<std::byte> target, const Contributor& who, uint64_t iteration);
  std::string (*text)(const std::byte* element);
};

constexpr size_t kPatternElements = 4093;

const char* redOpName(RedOp op);

// By nccl-tests' names (and float16, float32, float64); "all" gives every one. Errors name what is allowed.
Result<std::vector<const ElementType*>> parseTypes(const std::string& name);
Result<std::vector<RedOp>> parseRedOps(const std::string& name);

// A period of data and what is done with it. A user of only its first elements asks for no more: a small
// message is made and verified in far less time than a period.
class Pattern {
 public:
  // The contribution of one rank.
  static Pattern ofRank(const ElementType& type, RedOp op, const Contributor& who, uint64_t iteration,
                        size_t elements = kPatternElements);
  // The result that the contributions of ranks 0 to size-1 reduce to.
  static Pattern reduced(const ElementType& type, RedOp op, int size, uint64_t iteration,
                         size_t elements = kPatternElements);

  void fill(std::span<std::byte> target) const;
  // Elements of `data` that differ, and the first of them, when `data` begins at that element of the pattern.
  uint64_t countWrong(std::span<const std::byte> data, size_t first = 0) const;
  std::string describeFirstWrong(std::span<const std::byte> data, size_t first = 0) const;

 private:
  Pattern(const ElementType& type, size_t elements)
      : type_(&type), period_(std::min(elements, kPatternElements) * type.bytes) {}
  uint64_t countInBlock(std::span<const std::byte> data, const std::byte* expected) const;

  const ElementType* type_;
  std::vector<std::byte> period_;
};

}  // namespace weft::perf
