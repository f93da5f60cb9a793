// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "nccl/collnet.h"
#include "plugin/abi.h"
#include "plugin/coll.h"

// The shapes of NCCL's calls for collective offload, as abi.h has those of the network tables: picked by the
// type of the table's own field.
namespace weft::plugin::coll_abi {

// v6 to v10: the process-wide context.
inline ncclResult_t init(ncclDebugLogger_t logger) {
  return startShared(logger, nullptr);
}

// From v11 on: a context of the communicator.
inline ncclResult_t init(void** context, uint64_t commId, ncclDebugLogger_t logger) {
  return openCollContext(context, commId, logger);
}

template <class Size>
ncclResult_t regMr(void* comm, void* data, Size size, int type, void** mhandle) {
  return registerWithGroup(comm, data, static_cast<size_t>(size), type, mhandle);
}

template <class Count>
ncclResult_t iallreduce(void* comm, void* send, void* receive, Count count, ncclDataType_t type,
                        ncclRedOp_t op, void* sendMhandle, void* receiveMhandle, void** request) {
  return startAllReduce(comm, send, receive, static_cast<size_t>(count), type, op, sendMhandle,
                        receiveMhandle, request);
}

// The parts of a window as a version-free call. Only the first part is read.
template <class Piece>
GatherCall gatherCall(void* own, void* ownMhandle, int parts, const Piece* pieces, size_t bytesPerRank,
                      size_t windowOffset, size_t windowBytes) {
  GatherCall call{own, ownMhandle, parts, nullptr, 0, nullptr, bytesPerRank, windowOffset, windowBytes};
  if (parts < 1 || !pieces) return call;
  call.part = pieces->address;
  call.partBytes = pieces->size;
  call.partMhandle = pieces->mhandle;
  return call;
}

template <class Piece>
ncclResult_t iallgather(void* comm, void* send, int parts, Piece* receiveParts, size_t bytesPerRank,
                        size_t windowOffset, size_t windowBytes, void* sendMhandle, void** request) {
  return startAllGather(
      comm, gatherCall(send, sendMhandle, parts, receiveParts, bytesPerRank, windowOffset, windowBytes),
      request);
}

template <class Piece>
ncclResult_t ireducescatter(void* comm, int parts, Piece* sendParts, void* receive, size_t bytesPerRank,
                            size_t windowOffset, size_t windowBytes, ncclDataType_t type, ncclRedOp_t op,
                            void* receiveMhandle, void** request) {
  return startReduceScatter(
      comm, gatherCall(receive, receiveMhandle, parts, sendParts, bytesPerRank, windowOffset, windowBytes),
      type, op, request);
}

template <class Table>
constexpr Table makeCollNet() {
  Table table{};
  table.name = "weft";
  table.init = &init;
  table.devices = &countCollDevices;
  table.getProperties = &abi::getProperties;
  table.listen = &abi::listen;
  table.connect = &connectGroup;
  table.reduceSupport = &reduceSupport;
  table.regMr = &regMr;
  table.regMrDmaBuf = &collRegMrDmaBuf;
  table.deregMr = &collDeregMr;
  table.iallreduce = &iallreduce;
  if constexpr (requires { table.iallgather; }) {
    table.iallgather = &iallgather;
    table.ireducescatter = &ireducescatter;
  }
  table.iflush = &collFlush;
  table.test = &collTest;
  table.closeColl = &closeColl;
  table.closeListen = &closeListen;
  if constexpr (requires { table.makeVDevice; }) table.makeVDevice = &abi::makeVDevice;
  if constexpr (requires { table.finalize; }) table.finalize = &closeContext;
  return table;
}

}  // namespace weft::plugin::coll_abi
