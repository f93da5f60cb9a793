// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

// The content of a trace of a network plugin's calls: docs/trace.md. Written by tools/record, read by `weft
// trace` and `weft perf --replay`. A file is a head and blocks; a block is of one thread and can be decoded
// by itself. Values; any thread.
namespace weft::trace {

// A file begins with this and the version, 16 bits little-endian.
constexpr std::string_view kMagic{"WEFTTRC\n", 8};
constexpr uint16_t kVersion = 1;
constexpr size_t kFileHeadBytes = 10;

// The thread of the block that says where the trace comes from: lines NAME=VALUE.
constexpr uint32_t kAboutThread = 0xffffffff;
constexpr uint32_t kMostThreads = 4096;
constexpr uint32_t kMostBlockBytes = 1 << 20;

// Before each block, little-endian. Times are nanoseconds since the trace began.
struct BlockHead {
  uint32_t mark = kMark;
  uint32_t thread = 0;
  uint32_t bytes = 0;
  uint32_t checksum = 0;                         // checksumOf the bytes
  uint64_t base = 0;                             // what the time of the first event is counted from
  static constexpr uint32_t kMark = 0x314b4c42;  // "BLK1"
};
static_assert(sizeof(BlockHead) == 24);

uint32_t checksumOf(std::span<const std::byte> bytes);

// A call of the plugin, except thread (the first of a thread), table (which one NCCL took) and lost.
enum class Kind : uint8_t {
  thread,
  table,
  init,
  finalize,
  devices,
  properties,
  makeVDevice,
  listen,
  connect,
  accept,
  closeSend,
  closeRecv,
  closeListen,
  regMr,
  regMrDmaBuf,
  deregMr,
  isend,
  irecv,
  iflush,
  test,
  setNetAttr,
  lost,
  // Of the table for collective offload; its registrations, flushes and tests are as the network's.
  collInit,
  collFinalize,
  collListen,
  collConnect,
  closeColl,
  iallreduce,
  iallgather,
  ireducescatter,
  // Of the table of one-sided operations; its closings, deregistrations and tests are as the others'.
  rmaInit,
  rmaFinalize,
  rmaListen,
  rmaConnect,
  createContext,
  destroyContext,
  regMrSym,
  iput,
  iputSignal,
  iget,
  iflushRma,
  count
};
constexpr size_t kKinds = static_cast<size_t>(Kind::count);

// How a value becomes a varint: as it is, as the signed difference to the last one of the same field in the
// block, as a signed number, or not at all but as 8 bytes.
enum class Coding : uint8_t { plain, delta, zigzag, fixed };

struct Field {
  const char* name = nullptr;
  Coding coding = Coding::plain;
};

constexpr size_t kMostFields = 12;
constexpr size_t kMostParts = 64;
constexpr size_t kMostText = 4096;

// Bit sets of the values of irecv's field `flags`.
constexpr uint64_t kOptionalCompletion = 1;

// A message of a request, or a size that test told. `memory` is the registration's number; 0: none.
struct Part {
  uint64_t size = 0;
  uint64_t memory = 0;
  uint64_t offset = 0;
  int64_t tag = 0;
};

enum class Parts : uint8_t { none, sizes, messages };

struct KindFacts {
  const char* name = nullptr;
  size_t fields = 0;
  std::array<Field, kMostFields> field{};
  Parts parts = Parts::none;
  bool text = false;
};
const KindFacts& factsOf(Kind kind);

// Positions in Event::values, by kind. Numbers of comms, registrations, requests and contexts begin at 1 and
// are used once; 0 is none.
namespace at {
constexpr size_t kContext = 0;                          // init, finalize, listen, connect, setNetAttr
constexpr size_t kCommId = 1, kTrafficClass = 2;        // init
constexpr size_t kDevice = 1;                           // listen, connect
constexpr size_t kListenComm = 2, kListenHandle = 3;    // listen
constexpr size_t kConnectHandle = 2, kConnectComm = 3;  // connect; then not-now and waited
constexpr size_t kConnectNotNow = 4, kConnectWaited = 5;
constexpr size_t kAcceptListen = 0, kAcceptComm = 1, kAcceptNotNow = 2, kAcceptWaited = 3;
constexpr size_t kComm = 0;  // close*, regMr*, deregMr, isend, irecv, iflush, test
constexpr size_t kMemory = 1, kAddress = 2, kBytes = 3, kType = 4;  // regMr, regMrDmaBuf, deregMr
constexpr size_t kRequest = 1;                                      // isend, irecv, iflush, test
constexpr size_t kNotNow = 2, kWaited = 3, kFlags = 4;              // isend, irecv
constexpr size_t kTests = 2;                                        // test
constexpr size_t kAbi = 0;                                          // table
constexpr size_t kCollListen = 0, kCollComm = 1, kCollRank = 2;     // collConnect
constexpr size_t kCollRanks = 3, kCollGroup = 4;                    // the latter: of all ranks' handles
constexpr size_t kElementType = 4, kOp = 5;                         // iallreduce, ireducescatter
constexpr size_t kGatherWindow = 4, kScatterWindow = 6;         // bytes a rank, the window's begin, its bytes
constexpr size_t kRmaVersion = 2;                               // rmaInit
constexpr size_t kRmaMade = 1, kRmaContexts = 2;                // createContext, destroyContext
constexpr size_t kWindowFlags = 5, kWindowByDmaBuf = 6;         // regMrSym, otherwise as regMr
constexpr size_t kRmaContext = 2, kRmaRank = 3, kRmaHints = 4;  // iput, iputSignal, iget, iflushRma
constexpr size_t kSignalMemory = 5, kSignalOffset = 6;          // iputSignal
constexpr size_t kSignalValue = 7, kSignalStrong = 8;
}  // namespace at

// Result codes are NCCL's.
struct Event {
  Kind kind = Kind::count;
  uint32_t thread = 0;
  uint64_t time = 0;      // when the call began; of test: when it said done
  uint64_t duration = 0;  // of the call; 0 of test
  uint32_t result = 0;
  std::array<uint64_t, kMostFields> values{};
  std::vector<Part> parts;
  std::string_view text;  // in the trace's own memory

  uint64_t operator[](size_t position) const { return values[position]; }
};

}  // namespace weft::trace
