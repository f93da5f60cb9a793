// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>

#include "nccl/types.h"
#include "plugin/guard.h"
#include "plugin/plugin.h"

// The facts about devices that NCCL is told, for the struct of every version: fields that a struct does not
// have are left out at compile time. Any thread; cheap, as NCCL asks often.
namespace weft::plugin {

// 0 where nothing is usable; that is no error.
ncclResult_t countDevices(int* count);

int pointerSupport(const core::Properties& from);

// The members of a device; unused entries are -1.
template <class Members>
void writeMembers(const core::Properties& from, Members* out) {
  std::fill(std::begin(out->devs), std::end(out->devs), -1);
  out->ndevs = static_cast<int>(std::min(from.members.size(), std::size(out->devs)));
  std::copy_n(from.members.begin(), out->ndevs, std::begin(out->devs));
}

// NCCL's struct has pointers to plain char, but NCCL does not write through them.
template <class Out>
void writeProperties(const core::Properties& from, Out* out) {
  std::memset(out, 0, sizeof *out);  // NCCL passes the struct uninitialised; the padding is cleared as well
  out->name = const_cast<char*>(from.name.c_str());
  out->pciPath = from.pciPath.empty() ? nullptr : const_cast<char*>(from.pciPath.c_str());
  out->guid = from.guid;
  out->ptrSupport = pointerSupport(from);
  out->speed = from.speedMbps;
  out->port = from.port;
  out->latency = from.latencyUs;
  out->maxComms = from.maxComms;
  out->maxRecvs = from.maxRecvs;
  if constexpr (requires { out->netDeviceType; }) {
    out->netDeviceType = NCCL_NET_DEVICE_HOST;
    out->netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION;
  }
  if constexpr (requires { out->regIsGlobal; }) out->regIsGlobal = from.regIsGlobal ? 1 : 0;
  if constexpr (requires { out->forceFlush; }) out->forceFlush = from.forceFlush ? 1 : 0;
  if constexpr (requires { out->vProps; }) writeMembers(from, &out->vProps);
  if constexpr (requires { out->maxP2pBytes; }) out->maxP2pBytes = from.maxP2pBytes;
  if constexpr (requires { out->maxCollBytes; }) out->maxCollBytes = from.maxCollBytes;
  if constexpr (requires { out->maxMultiRequestSize; }) out->maxMultiRequestSize = 1;
  if constexpr (requires { out->railId; }) out->railId = static_cast<int16_t>(from.railId);
  if constexpr (requires { out->planeId; }) out->planeId = static_cast<int16_t>(from.planeId);
}

// The strings belong to the fabric, which outlives NCCL's use of them.
template <class Out>
Status writeProperties(int device, Out* out) {
  if (!out) return Error(Code::invalidArgument, "describing a device", "no place for the answer");
  TRY(const core::Properties* found, Plugin::get().properties(device));
  writeProperties(*found, out);
  return {};
}

template <class Members>
Status fuseDevices(int* device, const Members* members) {
  constexpr const char* kOperation = "making a virtual device";
  if (!device || !members) return Error(Code::invalidArgument, kOperation, "an argument is null");
  if (members->ndevs < 1 || static_cast<size_t>(members->ndevs) > std::size(members->devs))
    return Error(Code::invalidArgument, kOperation,
                 format("%d members; 1 to %zu are possible", members->ndevs, std::size(members->devs)));
  const std::span<const int> listed(members->devs, static_cast<size_t>(members->ndevs));
  TRY(*device, Plugin::get().makeVirtual(listed));
  return {};
}

}  // namespace weft::plugin
