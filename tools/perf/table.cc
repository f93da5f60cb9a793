// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/table.h"

#include <fmt/format.h>

namespace weft::perf {

namespace {

constexpr const char* kHeader =
    "#\n"
    "#                                                       out-of-place                       in-place\n"
    "#       size         count      type   redop    root      time   algbw   busbw  #wrong      time   "
    "algbw   busbw  "
    "#wrong\n"
    "#        (B)    (elements)                                (us)  (GB/s)  (GB/s)              (us)  "
    "(GB/s)  "
    "(GB/s)\n";

}  // namespace

const char* tableHeader() {
  return kHeader;
}

std::string keyText(const Row& row) {
  return fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", row.bytes, row.count, row.type, row.redop,
                     row.root);
}

std::string halfText(const Results& results, const Row& row, const std::optional<RowHalf>& half) {
  if (!half) return fmt::format("  {:>8}  {:>6}  {:>6}  {:>6}", "-", "-", "-", "-");
  const Sample& sample = half->sample;
  const auto wrong = results.options->check != 0 ? std::to_string(sample.wrong) : std::string("N/A");
  return fmt::format("  {:>8.2f}  {:>6.2f}  {:>6.2f}  {:>6}", sample.microseconds,
                     results.algorithmGBps(row, sample), results.busGBps(row, sample), wrong);
}

}  // namespace weft::perf
