// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>

// The part that weft uses of libsharp_coll, NVIDIA's library for aggregation in InfiniBand switches. It is
// declared here, as its header comes with a driver package only. Source: sharp_coll.h of SHARP 2.x and 3.x;
// layouts for 64-bit processes. Newer releases add fields behind these. Functions return 0 or a negative
// code.
namespace weft::coll::sharp {

// Opaque: the library's own.
struct Context;
struct Comm;

enum DataType : int { kU32, kI32, kU64, kI64, kF32, kF64, kU16, kI16, kF16, kBf16, kU8, kI8 };
enum ReduceOperation : int { kMax, kMin, kSum, kProd, kLand, kBand, kLor, kBor, kLxor, kBxor };
enum MemoryType : int { kHost, kCuda };

constexpr int kLockFailed = -18;          // another group has the tree's lock; a later try may succeed
constexpr uint64_t kStreaming = 1u << 2;  // of Capabilities::features; gathers and scatters need it

// sharp_coll_config
struct Configuration {
  const char* devices;  // "mlx5_0:1,mlx5_1:1"
  int pollsBeforeProgress;
  int timeoutMs;  // of an operation, in ms; -1: none
  uint32_t flags;
  int reserved[3];
};

// The calls by which the library uses the ranks' own connections while it is set up and taken down. They
// block, and return 0 or an error. `context` is callsContext of the structure that brought them.
struct OutOfBandCalls {
  int (*broadcast)(void* context, void* buffer, int bytes, int root);
  int (*barrier)(void* context);
  int (*gather)(void* context, int root, void* send, void* receive, int bytes);
};

// sharp_coll_init_spec
struct JobSpec {
  uint64_t job;
  int rank;
  int ranks;
  int (*progress)();
  int channel;
  Configuration configuration;
  OutOfBandCalls calls;
  int localRank;
  int threads;  // 1: several threads may call the library
  void* callsContext;
  int reserved[4];
};

// sharp_coll_comm_init_spec
struct CommSpec {
  int rank;
  int ranks;
  void* callsContext;
  const uint32_t* members;  // null: all ranks of the job
  int reserved[2];
};

// sharp_coll_caps
struct Capabilities {
  int packetVersion;
  uint64_t reserved[2];
  uint64_t types;  // a bit for each DataType
  uint64_t tagTypes;
  uint64_t operations;  // a bit for each ReduceOperation
  uint64_t features;
  uint64_t more[4];
  int resources[5];
  uint64_t room[32];  // not of the interface: room for the fields that newer releases write
};

// sharp_coll_data_desc
struct Buffer {
  int kind;  // 0: contiguous
  MemoryType memory;
  int reserved[2];
  void* address;
  size_t bytes;
  void* registration;
};

// sharp_coll_reduce_spec, for all-reduce and reduce-scatter
struct Reduction {
  int root;
  Buffer send;
  Buffer receive;
  DataType type;
  size_t elements;
  ReduceOperation operation;
  DataType tagType;
  int mode;       // 0: as the library likes
  int lockBatch;  // the number of operations for which the tree's lock is kept
  size_t offset;  // of a scatter's window, in bytes
  int reserved[2];
};

// sharp_coll_gather_spec
struct Gather {
  Buffer send;
  Buffer receive;
  DataType type;
  size_t size;
  size_t offset;
  int reserved[4];
};

// `fields` says which of the fields below are valid.
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
