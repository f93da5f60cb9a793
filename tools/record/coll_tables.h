// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <mutex>

#include "nccl/collnet.h"
#include "tools/record/shared_entries.h"

// The tables for collective offload, made as those of the network are (tables.h). Where the wrapped plugin
// has none, init says so and NCCL goes on without. Calls that only ask (devices, properties, supported
// reductions) are forwarded and not recorded: the network's table has the same devices.
namespace weft::record {

inline size_t bytesOf(ncclDataType_t type) {
  constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};  // ncclInt8 to the two of eight bits
  const auto at = static_cast<size_t>(type);
  return at < std::size(kBytes) ? kBytes[at] : 0;
}

// The parts of a gather or a scatter: what is alone first.
template <class Sge>
struct CollParts {
  std::array<void*, trace::kMostParts> data{};
  std::array<void*, trace::kMostParts> mhandles{};
  std::array<size_t, trace::kMostParts> sizes{};
  std::array<Sge, trace::kMostParts> real{};  // with the wrapped plugin's registrations
  int count = 0;

  // False: more than can be recorded.
  bool fill(void* alone, size_t aloneBytes, void* aloneMemory, int parts, const Sge* theirs) {
    if (parts < 0 || parts + 1 > static_cast<int>(trace::kMostParts) || theirs == nullptr) return false;
    data[0] = alone;
    mhandles[0] = aloneMemory;
    sizes[0] = aloneBytes;
    for (int i = 0; i < parts; ++i) {
      const auto at = static_cast<size_t>(i);
      real[at] = theirs[i];
      real[at].mhandle = realOf<Memory>(theirs[i].mhandle);
      data[at + 1] = theirs[i].address;
      mhandles[at + 1] = theirs[i].mhandle;
      sizes[at + 1] = theirs[i].size;
    }
    count = parts + 1;
    return true;
  }
};

template <class Table>
class CollEntries : public SharedEntries<Table> {
  using SharedEntries<Table>::real_;
  using SharedEntries<Table>::version;

 public:
  static ncclResult_t init(ncclDebugLogger_t logger) {
    if (!adopt(logger)) return ncclSystemError;
    return recordInit(trace::Kind::collInit, nullptr, 0, 0, [&](void**) { return real_->init(logger); });
  }
  static ncclResult_t init(void** context, uint64_t commId, ncclDebugLogger_t logger) {
    if (context == nullptr) return ncclInvalidArgument;
    if (!adopt(logger)) return ncclSystemError;
    return recordInit(trace::Kind::collInit, context, commId, 0,
                      [&](void** made) { return real_->init(made, commId, logger); });
  }
  static ncclResult_t devices(int* count) { return real_->devices(count); }
  template <class Properties>
  static ncclResult_t getProperties(int device, Properties* out) {
    return real_->getProperties(device, out);
  }
  template <class Members>
  static ncclResult_t makeVDevice(int* device, Members* members) {
    return real_->makeVDevice(device, members);
  }
  static ncclResult_t reduceSupport(ncclDataType_t type, ncclRedOp_t op, int* supported) {
    return real_->reduceSupport(type, op, supported);
  }

  static ncclResult_t connect(void* handles[], int ranks, int rank, void* listenComm, void** collComm) {
    if (handles == nullptr || ranks < 1) return ncclInvalidArgument;
    return recordGroupConnect(
        trace::Kind::collConnect, {handles, static_cast<size_t>(ranks)}, rank, listenComm, collComm,
        [&](void* real, void** made) { return real_->connect(handles, ranks, rank, real, made); });
  }
  static ncclResult_t closeColl(void* comm) {
    return recordClose(trace::Kind::closeColl, comm, [](void* real) { return real_->closeColl(real); });
  }
  template <class Count>
  static ncclResult_t iallreduce(void* comm, void* send, void* receive, Count count, ncclDataType_t type,
                                 ncclRedOp_t op, void* sendMemory, void* receiveMemory, void** request) {
    if (comm == nullptr || request == nullptr) return ncclInvalidArgument;
    void* const data[] = {send, receive};
    void* const memories[] = {sendMemory, receiveMemory};
    Post post{trace::Kind::iallreduce, static_cast<Comm*>(comm), 2, data, memories, nullptr};
    post.more = {static_cast<uint64_t>(type), static_cast<uint64_t>(op)};
    const size_t bytes = static_cast<size_t>(count) * bytesOf(type);
    return recordPost(
        post, request, [&](int) { return bytes; },
        [&] {
          return real_->iallreduce(post.comm->real, send, receive, count, type, op,
                                   realOf<Memory>(sendMemory), realOf<Memory>(receiveMemory), request);
        });
  }
  template <class Sge>
  static ncclResult_t iallgather(void* comm, void* send, int parts, Sge* receives, size_t bytesPerRank,
                                 size_t windowBegin, size_t windowBytes, void* sendMemory, void** request) {
    CollParts<Sge> all;
    if (comm == nullptr || request == nullptr || !all.fill(send, 0, sendMemory, parts, receives))
      return ncclInvalidArgument;
    Post post{trace::Kind::iallgather, static_cast<Comm*>(comm), all.count,
              all.data.data(),         all.mhandles.data(),      nullptr};
    post.more = {bytesPerRank, windowBegin, windowBytes};
    return recordPost(
        post, request, [&](int i) { return all.sizes[static_cast<size_t>(i)]; },
        [&] {
          return real_->iallgather(post.comm->real, send, parts, all.real.data(), bytesPerRank, windowBegin,
                                   windowBytes, realOf<Memory>(sendMemory), request);
        });
  }
  template <class Sge>
  static ncclResult_t ireducescatter(void* comm, int parts, Sge* sends, void* receive, size_t bytesPerRank,
                                     size_t windowBegin, size_t windowBytes, ncclDataType_t type,
                                     ncclRedOp_t op, void* receiveMemory, void** request) {
    CollParts<Sge> all;
    if (comm == nullptr || request == nullptr || !all.fill(receive, 0, receiveMemory, parts, sends))
      return ncclInvalidArgument;
    Post post{trace::Kind::ireducescatter,
              static_cast<Comm*>(comm),
              all.count,
              all.data.data(),
              all.mhandles.data(),
              nullptr};
    post.more = {static_cast<uint64_t>(type), static_cast<uint64_t>(op), bytesPerRank, windowBegin,
                 windowBytes};
    return recordPost(
        post, request, [&](int i) { return all.sizes[static_cast<size_t>(i)]; },
        [&] {
          return real_->ireducescatter(post.comm->real, parts, all.real.data(), receive, bytesPerRank,
                                       windowBegin, windowBytes, type, op, realOf<Memory>(receiveMemory),
                                       request);
        });
  }
  static ncclResult_t iflush(void* comm, void* data, int size, void* mhandle, void** request) {
    return recordGroup(
        trace::Kind::iflush, comm, Group<int>{1, &data, &size, nullptr, &mhandle}, request,
        [&](void* real, void** memories) { return real_->iflush(real, data, size, memories[0], request); });
  }
  static constexpr Table make() {
    Table table{};
    SharedEntries<Table>::fill(&table);
    table.init = &init;
    table.devices = &devices;
    table.getProperties = &getProperties;
    table.connect = &connect;
    table.reduceSupport = &reduceSupport;
    table.iallreduce = &iallreduce;
    table.iflush = &iflush;
    table.closeColl = &closeColl;
    if constexpr (requires { table.iallgather; }) table.iallgather = &iallgather;
    if constexpr (requires { table.ireducescatter; }) table.ireducescatter = &ireducescatter;
    if constexpr (requires { table.makeVDevice; }) table.makeVDevice = &makeVDevice;
    return table;
  }

 private:
  static bool adopt(ncclDebugLogger_t logger) {
    Recorder::instance().setLogger(logger);
    static std::once_flag once;
    std::call_once(once, [] {
      const Wrapped& wrapped = Wrapped::instance();
      real_ = static_cast<const Table*>(
          wrapped.usable(wrapped.collTable(version()), version(), "for collective offload"));
    });
    return real_ != nullptr;
  }
};

}  // namespace weft::record
