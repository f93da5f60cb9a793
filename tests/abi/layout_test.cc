// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Compares include/nccl with the measured layout of NCCL's network, one-sided and tuner tables: every size,
// alignment, offset, field and call type, enumerator and constant. Prints each difference and exits with 1 if
// there is one. A field that is missing, or one too many, does not compile.
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>

#include "nccl/collnet.h"
#include "nccl/net.h"
#include "nccl/rma.h"
#include "nccl/tuner.h"

namespace {

struct NumberFact {
  const char* what;
  long long expected;
  long long actual;
};

struct TypeFact {
  const char* what;
  bool same;
  std::string_view types;  // both, as the compiler writes them
};

template <class Actual, class Expected>
constexpr std::string_view typeNames() {
  std::string_view signature = __PRETTY_FUNCTION__;
  const size_t begin = signature.find("Actual = ");
  const size_t end = signature.find("; std::string_view");
  return signature.substr(begin, end == signature.npos ? end : end - begin);
}

template <class Actual, class Expected>
constexpr TypeFact typeFact(const char* what) {
  return {what, std::is_same_v<Actual, Expected>, typeNames<Actual, Expected>()};
}

#include "layout_facts.inc"

int reportNumbers() {
  int wrong = 0;
  for (const NumberFact& fact : kNumberFacts) {
    if (fact.actual == fact.expected) continue;
    std::printf("%s: %lld, expected %lld\n", fact.what, fact.actual, fact.expected);
    ++wrong;
  }
  return wrong;
}

int reportTypes() {
  int wrong = 0;
  for (const TypeFact& fact : kTypeFacts) {
    if (fact.same) continue;
    std::printf("%s: %.*s\n", fact.what, static_cast<int>(fact.types.size()), fact.types.data());
    ++wrong;
  }
  return wrong;
}

}  // namespace

int main() {
  const int wrong = reportNumbers() + reportTypes();
  std::printf("%zu numbers, %zu types and %d member counts compared, %d differ\n", std::size(kNumberFacts),
              std::size(kTypeFacts), kMemberCountFacts, wrong);
  return wrong == 0 ? 0 : 1;
}
