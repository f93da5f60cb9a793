// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/coll/kernels.h"

// The reduction loops, written once with the compiler's vector types. Every file that includes this header is
// compiled for another instruction set. Therefore all of it has internal linkage: the linker must never take
// one file's function for another's. For the same reason no template of the standard library is used. Pure
// functions; any thread.
namespace weft::coll {
namespace {  // NOLINT: see above

// A vector of `Bytes` bytes (GCC's vector_size; "Using Vector Instructions through Built-in Functions").
template <class T, size_t Bytes>
struct VecOf {
  typedef T type __attribute__((vector_size(Bytes)));
};
template <class T, size_t Bytes>
using Vec = typename VecOf<T, Bytes>::type;

template <class V>
[[gnu::always_inline]] inline V loadVec(const void* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

template <class V>
[[gnu::always_inline]] inline void storeVec(void* to, V value) {
  __builtin_memcpy(to, &value, sizeof value);
}

// --- operations, on scalars and on vectors alike. A comparison of vectors gives a mask, so a choice is
// written with ?:, which scalars and vectors both understand.

template <class V>
[[gnu::always_inline]] inline V lesser(V a, V b) {
  return (b < a) | (a != a) ? b : a;  // a NaN loses against a number, as on NCCL's GPUs
}

template <class V>
[[gnu::always_inline]] inline V greater(V a, V b) {
  return (a < b) | (a != a) ? b : a;
}

template <ReduceOp Op, class V>
[[gnu::always_inline]] inline V combine(V a, V b) {
  if constexpr (Op == ReduceOp::sum) return static_cast<V>(a + b);
  if constexpr (Op == ReduceOp::prod) return static_cast<V>(a * b);
  if constexpr (Op == ReduceOp::min) return lesser(a, b);
  if constexpr (Op == ReduceOp::max) return greater(a, b);
  if constexpr (Op == ReduceOp::bor) return static_cast<V>(a | b);
}

// --- how elements lie in memory (Raw) and the type that is computed with (Wide). kLanes elements fill a
// Wide.

template <class T, size_t Bytes>
struct Plain {
  using Raw = T;
  using Wide = Vec<T, Bytes>;
  static constexpr size_t kLanes = Bytes / sizeof(T);
  [[gnu::always_inline]] static Wide load(const T* from) { return loadVec<Wide>(from); }
  [[gnu::always_inline]] static void store(T* to, Wide value) { storeVec(to, value); }
};

template <size_t Bytes>
struct Brain {  // bfloat16 is the upper half of a float
  using Raw = uint16_t;
  using Wide = Vec<float, Bytes>;
  using Bits = Vec<uint32_t, Bytes>;
  using Narrow = Vec<uint16_t, Bytes / 2>;
  static constexpr size_t kLanes = Bytes / sizeof(float);
  [[gnu::always_inline]] static Wide load(const uint16_t* from) {
    const Bits bits = __builtin_convertvector(loadVec<Narrow>(from), Bits) << 16;
    return loadVec<Wide>(&bits);
  }
  // Rounds to the nearest, ties to even. A NaN stays a NaN: rounding could turn it into an infinity.
  [[gnu::always_inline]] static void store(uint16_t* to, Wide value) {
    const Bits bits = loadVec<Bits>(&value);
    const Bits rounded = (bits + (((bits >> 16) & 1) + 0x7fff)) >> 16;
    const Bits nan = (bits >> 16) | 0x40;
    const Bits chosen = (bits & 0x7fffffff) > 0x7f800000 ? nan : rounded;
    storeVec(to, __builtin_convertvector(chosen, Narrow));
  }
};

// Half precision (IEEE 754 binary16) by integer arithmetic, for processors without an instruction for it.
template <size_t Bytes>
struct PortableHalf {
  using Raw = uint16_t;
  using Wide = Vec<float, Bytes>;
  using Bits = Vec<uint32_t, Bytes>;
  using Narrow = Vec<uint16_t, Bytes / 2>;
  static constexpr size_t kLanes = Bytes / sizeof(float);
  [[gnu::always_inline]] static Wide load(const uint16_t* from) {
    const Bits half = __builtin_convertvector(loadVec<Narrow>(from), Bits);
    const Bits magnitude = (half & 0x7fff) << 13;
    const Wide scaled = loadVec<Wide>(&magnitude) * 0x1p112f;  // subnormals too
    Bits bits = loadVec<Bits>(&scaled);
    bits = (half & 0x7fff) >= 0x7c00 ? magnitude | 0x7f800000 : bits;
    // A signaling NaN becomes quiet, as the instruction does it.
    bits = (half & 0x7fff) > 0x7c00 ? bits | 0x00400000 : bits;
    bits |= (half & 0x8000) << 16;
    return loadVec<Wide>(&bits);
  }
  [[gnu::always_inline]] static void store(uint16_t* to, Wide value) {
    // Rounds to the nearest, ties to even, as the instruction vcvtps2ph does. 0x38800000 is 2^-14, the least
    // normal half; 0x47800000 is 2^16, from which on the result is an infinity.
    const Bits bits = loadVec<Bits>(&value);
    const Bits sign = (bits >> 16) & 0x8000;
    const Bits magnitude = bits & 0x7fffffff;
    const Wide shifted = loadVec<Wide>(&magnitude) + 0.5f;  // rounds a subnormal at the right place
    const Bits subnormal = loadVec<Bits>(&shifted) - 0x3f000000;
    const Bits odd = (magnitude >> 13) & 1;
    const Bits normal = (magnitude + odd + 0xc8000fff) >> 13;
    const Bits special =
        magnitude > 0x7f800000 ? ((magnitude >> 13) & 0x3ff) | 0x7e00 : (magnitude & 0) + 0x7c00;
    Bits half = magnitude < 0x38800000 ? subnormal : normal;
    half = magnitude >= 0x47800000 ? special : half;
    storeVec(to, __builtin_convertvector(half | sign, Narrow));
  }
};

// --- the loops

// Folds all inputs of a few vectors at a time, in the order of the inputs, so that the sums stay in
// registers.
template <class Lane, ReduceOp Op, size_t Unroll>
[[gnu::always_inline]] inline void foldAt(const void* const* inputs, size_t count, typename Lane::Raw* out,
                                          size_t at) {
  using Raw = typename Lane::Raw;
  typename Lane::Wide sum[Unroll];
  for (size_t u = 0; u < Unroll; u++)
    sum[u] = Lane::load(static_cast<const Raw*>(inputs[0]) + at + u * Lane::kLanes);
  for (size_t k = 1; k < count; k++) {
    const Raw* from = static_cast<const Raw*>(inputs[k]) + at;
    for (size_t u = 0; u < Unroll; u++) sum[u] = combine<Op>(sum[u], Lane::load(from + u * Lane::kLanes));
  }
  for (size_t u = 0; u < Unroll; u++) Lane::store(out + at + u * Lane::kLanes, sum[u]);
}

// The elements that do not fill a vector go through a padded vector, so that they are computed like all
// others.
template <class Lane, ReduceOp Op>
void foldTail(const void* const* inputs, size_t count, typename Lane::Raw* out, size_t at, size_t left) {
  using Raw = typename Lane::Raw;
  Raw some[Lane::kLanes] = {};
  __builtin_memcpy(some, static_cast<const Raw*>(inputs[0]) + at, left * sizeof(Raw));
  typename Lane::Wide sum = Lane::load(some);
  for (size_t k = 1; k < count; k++) {
    __builtin_memcpy(some, static_cast<const Raw*>(inputs[k]) + at, left * sizeof(Raw));
    sum = combine<Op>(sum, Lane::load(some));
  }
  Lane::store(some, sum);
  __builtin_memcpy(out + at, some, left * sizeof(Raw));
}

// `to` may be one of the inputs: each element is read from all inputs before it is written.
template <class Lane, ReduceOp Op>
void fold(const void* const* inputs, size_t count, void* to, size_t elements) {
  constexpr size_t kUnroll = 4;
  auto* out = static_cast<typename Lane::Raw*>(to);
  size_t at = 0;
  for (; at + kUnroll * Lane::kLanes <= elements; at += kUnroll * Lane::kLanes)
    foldAt<Lane, Op, kUnroll>(inputs, count, out, at);
  for (; at + Lane::kLanes <= elements; at += Lane::kLanes) foldAt<Lane, Op, 1>(inputs, count, out, at);
  if (at < elements) foldTail<Lane, Op>(inputs, count, out, at, elements - at);
}

// --- the table

template <class Lane>
constexpr void setArithmetic(KernelTable* table, ElementType type) {
  Kernel* row = table->of[static_cast<size_t>(type)];
  row[static_cast<size_t>(ReduceOp::sum)] = &fold<Lane, ReduceOp::sum>;
  row[static_cast<size_t>(ReduceOp::prod)] = &fold<Lane, ReduceOp::prod>;
  row[static_cast<size_t>(ReduceOp::min)] = &fold<Lane, ReduceOp::min>;
  row[static_cast<size_t>(ReduceOp::max)] = &fold<Lane, ReduceOp::max>;
}

// Vectors of `Bytes` bytes; Half says how half precision is read and written. Sums and products of integers
// have to wrap, signed ones too: these files are compiled with -fwrapv (meson.build).
template <size_t Bytes, class Half>
constexpr KernelTable makeTable(const char* name) {
  KernelTable table{};
  table.name = name;
  setArithmetic<Plain<int8_t, Bytes>>(&table, ElementType::i8);
  setArithmetic<Plain<uint8_t, Bytes>>(&table, ElementType::u8);
  setArithmetic<Plain<int32_t, Bytes>>(&table, ElementType::i32);
  setArithmetic<Plain<uint32_t, Bytes>>(&table, ElementType::u32);
  setArithmetic<Plain<int64_t, Bytes>>(&table, ElementType::i64);
  setArithmetic<Plain<uint64_t, Bytes>>(&table, ElementType::u64);
  setArithmetic<Half>(&table, ElementType::f16);
  setArithmetic<Brain<Bytes>>(&table, ElementType::bf16);
  setArithmetic<Plain<float, Bytes>>(&table, ElementType::f32);
  setArithmetic<Plain<double, Bytes>>(&table, ElementType::f64);
  table.of[static_cast<size_t>(ElementType::u8)][static_cast<size_t>(ReduceOp::bor)] =
      &fold<Plain<uint8_t, Bytes>, ReduceOp::bor>;
  return table;
}

}  // namespace
}  // namespace weft::coll
