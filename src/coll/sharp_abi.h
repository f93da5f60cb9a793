// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>

// The part of libsharp_coll that weft uses, NVIDIA's library that drives aggregation in InfiniBand switches:
// declared here, as its header comes with a driver package only. Layouts for 64-bit processes, of the
// interface of SHARP 2.x and 3.x (sharp_coll.h); newer releases add behind them. Functions return 0 or a
// negative code.
namespace weft::coll::sharp {

struct Context;
struct Comm;

enum DataType : int { kU32, kI32, kU64, kI64, kF32, kF64, kU16, kI16, kF16, kBf16, kU8, kI8 };
enum ReduceOperation : int { kMax, kMin, kSum, kProd, kLand, kBand, kLor, kBor, kLxor, kBxor };
enum MemoryType : int { kHost, kCuda };

constexpr int kLockFailed = -18;          // another group has the tree's lock: may be tried again
constexpr uint64_t kStreaming = 1u << 2;  // in Capabilities::features; gathers and scatters want it

struct Configuration {
  const char* devices;  // "mlx5_0:1,mlx5_1:1"
  int pollsBeforeProgress;
  int timeoutMs;  // of an operation; -1: none
  uint32_t flags;
  int reserved[3];
};

// The calls by which the library uses the ranks' own connections, while it is set up and taken down. They
// block, and return 0 or not. `context` is what the structure that brought them named.
struct OutOfBandCalls {
  int (*broadcast)(void* context, void* buffer, int bytes, int root);
  int (*barrier)(void* context);
  int (*gather)(void* context, int root, void* send, void* receive, int bytes);
};

struct JobSpec {
  uint64_t job;
  int rank;
  int ranks;
  int (*progress)();
  int channel;
  Configuration configuration;
  OutOfBandCalls calls;
  int localRank;
  int threads;  // 1: calls may come from several
  void* callsContext;
  int reserved[4];
};

struct CommSpec {
  int rank;
  int ranks;
  void* callsContext;
  const uint32_t* members;  // null: all of the job
  int reserved[2];
};

struct Capabilities {
  int packetVersion;
  uint64_t reserved[2];
  uint64_t types;  // a bit for each DataType
  uint64_t tagTypes;
  uint64_t operations;  // a bit for each ReduceOperation
  uint64_t features;
  uint64_t more[4];
  int resources[5];
  uint64_t room[32];  // not of the interface: newer releases write more
};

struct Buffer {
  int kind;  // 0: contiguous
  MemoryType memory;
  int reserved[2];
  void* address;
  size_t bytes;
  void* registration;
};

struct Reduction {
  int root;
  Buffer send;
  Buffer receive;
  DataType type;
  size_t elements;
  ReduceOperation operation;
  DataType tagType;
  int mode;       // 0: as the library likes
  int lockBatch;  // operations for which the tree's lock is kept
  size_t offset;  // of a scatter's window
  int reserved[2];
};

struct Gather {
  Buffer send;
  Buffer receive;
  DataType type;
  size_t size;
  size_t offset;
  int reserved[4];
};

// Which of the fields below are valid is in `fields`.
struct RegistrationOptions {
  static constexpr uint64_t kFd = 1, kOffset = 2;
  uint64_t fields;
  int fd;
  size_t offset;
};

static_assert(sizeof(Configuration) == 32 && sizeof(JobSpec) == 120 && sizeof(CommSpec) == 32);
static_assert(offsetof(JobSpec, configuration) == 32 && offsetof(JobSpec, callsContext) == 96);
static_assert(offsetof(Capabilities, types) == 24 && offsetof(Capabilities, features) == 48);
static_assert(sizeof(Buffer) == 40 && sizeof(Reduction) == 136 && sizeof(Gather) == 120);
static_assert(offsetof(Reduction, elements) == 96 && offsetof(Reduction, offset) == 120);
static_assert(sizeof(RegistrationOptions) == 24);

}  // namespace weft::coll::sharp
