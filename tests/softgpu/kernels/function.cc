// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/kernels/function.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "tests/softgpu/ownership.h"

namespace softgpu {

namespace {

using Key = std::tuple<std::string, std::string, std::string, std::string, std::string>;
using Names = std::vector<std::string>;

// What differs between versions: the types of eight bits and PAT came with 2.24, gather of different sizes
// with 2.29.
struct Era {
  bool smallFloats, pat, signedAverage, gatherV;
};

Era eraOf(int version) {
  return {version >= 22400, version >= 22300, version >= 22400, version >= 22900};
}

bool isReduction(const std::string& collective) {
  return collective == "AllReduce" || collective == "Reduce" || collective == "ReduceScatter";
}

Names algorithmsOf(const std::string& collective, const Era& era) {
  if (collective == "SendRecv") return {""};
  if (collective == "AllReduce") {
    return {"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE"};
  }
  if (collective == "AllGather" || collective == "ReduceScatter") {
    return era.pat ? Names{"RING", "COLLNET_DIRECT", "NVLS", "PAT"} : Names{"RING", "COLLNET_DIRECT", "NVLS"};
  }
  return {"RING"};
}

bool isInteger(const std::string& type) {
  return type[0] == 'i' || type[0] == 'u';
}

// NVLink SHARP reduces some types only.
bool hasNvls(const std::string& reduction, const std::string& type) {
  if (type == "i32" || type == "u32" || type == "i64" || type == "u64" || type == "f16" || type == "bf16") {
    return reduction == "Sum" || reduction == "MinMax";
  }
  return (type == "f32" || type == "f64") && reduction == "Sum";
}

bool exists(const Key& key) {
  const auto& [collective, reduction, type, algorithm, protocol] = key;
  if (protocol != "SIMPLE" && algorithm != "RING" && algorithm != "TREE") return false;
  if (!isReduction(collective)) return true;
  if (reduction == "SumPostDiv" && !isInteger(type)) return false;
  return algorithm.find("NVLS") == std::string::npos || hasNvls(reduction, type);
}

// Signed integers share the code of unsigned ones where it does the same.
Key primary(Key key, const Era& era) {
  auto& [collective, reduction, type, algorithm, protocol] = key;
  if (!isReduction(collective) || type[0] != 'i') return key;
  const bool minMax = reduction == "MinMax" && algorithm.find("NVLS") == std::string::npos;
  const bool same = reduction == "Sum" || reduction == "Prod" || reduction == "PreMulSum" || minMax ||
                    (reduction == "SumPostDiv" && era.signedAverage);
  if (same) type[0] = 'u';
  return key;
}

// NCCL numbers its device functions in the order of their names.
std::vector<DeviceFunction> enumerate(const Era& era) {
  Names types{"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16"};
  if (era.smallFloats) types.insert(types.end(), {"f8e4m3", "f8e5m2"});
  Names collectives{"AllGather", "AllReduce", "Broadcast", "Reduce", "ReduceScatter"};
  if (era.gatherV) collectives.emplace_back("AllGatherV");
  std::set<Key> keys{{"SendRecv", "", "", "", ""}};
  for (const auto& collective : collectives) {
    const bool reduces = isReduction(collective);
    for (const auto& reduction :
         reduces ? Names{"Sum", "Prod", "MinMax", "PreMulSum", "SumPostDiv"} : Names{""}) {
      for (const auto& type : reduces ? types : Names{""}) {
        for (const auto& algorithm : algorithmsOf(collective, era)) {
          for (const char* protocol : {"LL", "LL128", "SIMPLE"}) {
            const Key key{collective, reduction, type, algorithm, protocol};
            if (exists(key)) keys.insert(primary(key, era));
          }
        }
      }
    }
  }
  std::vector<DeviceFunction> functions;
  for (const auto& [collective, reduction, type, algorithm, protocol] : keys) {
    functions.push_back({collective, reduction, type, algorithm, protocol});
  }
  return functions;
}

}  // namespace

std::string DeviceFunction::text() const {
  std::string whole = collective;
  for (const auto* part : {&reduction, &type, &algorithm, &protocol}) {
    if (!part->empty()) whole += " " + *part;
  }
  return whole;
}

const DeviceFunction* findFunction(int version, unsigned id) {
  static auto* const lock = &immortal<std::mutex>();
  static auto* const tables = &immortal<std::map<int, std::vector<DeviceFunction>>>();
  const std::lock_guard guard(*lock);
  auto& table = (*tables)[version];
  if (table.empty()) table = enumerate(eraOf(version));
  return id < table.size() ? &table[id] : nullptr;
}

}  // namespace softgpu
