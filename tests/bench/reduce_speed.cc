// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "src/coll/kernels.h"

// usage: reduce_speed BYTES INPUTS
//
// How fast one core reduces INPUTS vectors of BYTES each, by type and instruction set: bytes read a second,
// the best of many rounds. "read" is what a loop that only reads the same vectors reaches. For
// tests/bench/reduce-speed.
using namespace weft::coll;
using Time = std::chrono::steady_clock;

namespace {

using Vectors = std::vector<std::vector<uint8_t>>;

// Best of the rounds in GB/s of what is read.
template <class Once>
double best(double bytes, Once once) {
  double seconds = 1e9;
  const auto end = Time::now() + std::chrono::milliseconds(150);
  do {
    const auto start = Time::now();
    const int times = static_cast<int>(std::max(1.0, 4e6 / bytes));
    for (int i = 0; i < times; i++) once();
    seconds = std::min(seconds, std::chrono::duration<double>(Time::now() - start).count() / times);
  } while (Time::now() < end);
  return bytes / seconds / 1e9;
}

typedef uint64_t Line __attribute__((vector_size(32), aligned(1), may_alias));

[[gnu::target("avx2"), gnu::noinline]] void readAll(const Vectors& vectors) {
  Line sum[4] = {};
  for (const auto& vector : vectors) {
    const auto* line = reinterpret_cast<const Line*>(vector.data());
    for (size_t i = 0; i + 4 <= vector.size() / sizeof(Line); i += 4)
      for (size_t u = 0; u < 4; u++) sum[u] |= line[i + u];
  }
  for (const Line& part : sum) asm volatile("" : : "r"(&part) : "memory");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: reduce_speed BYTES INPUTS\n"), 2;
  const size_t bytes = std::strtoul(argv[1], nullptr, 10) / 128 * 128;
  const size_t inputs = std::strtoul(argv[2], nullptr, 10);
  if (bytes == 0 || inputs == 0)
    return std::fprintf(stderr, "reduce_speed: BYTES of 128 or more, INPUTS of 1\n"), 2;
  Vectors vectors(inputs, std::vector<uint8_t>(bytes, 0));
  std::vector<uint8_t> out(bytes);
  std::vector<const void*> pointers;
  for (const auto& vector : vectors) pointers.push_back(vector.data());
  const double total = static_cast<double>(bytes) * static_cast<double>(inputs);
  std::printf("read - %.2f\n", best(total, [&] { readAll(vectors); }));
  for (const KernelTable* table : runnableKernels())
    for (const ElementType type : {ElementType::f32, ElementType::bf16, ElementType::f16, ElementType::f64,
                                   ElementType::i32, ElementType::i8}) {
      const Kernel kernel = table->of[static_cast<size_t>(type)][static_cast<size_t>(ReduceOp::sum)];
      std::printf("%s %s %.2f\n", table->name, nameOf(type), best(total, [&] {
                    kernel(pointers.data(), inputs, out.data(), bytes / elementBytes(type));
                  }));
    }
}
