// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/kernels/kernel.h"

#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>

#include "tests/softgpu/kernels/element.h"
#include "tests/softgpu/kernels/players.h"
#include "tests/softgpu/memory.h"
#include "tests/softgpu/ownership.h"
#include "tests/softgpu/report.h"

namespace softgpu {

namespace {

std::atomic<Result> failure{kSuccess};

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

bool isNccl(const Kernel& kernel) {
  return contains(kernel.name, "ncclDevKernel_");
}
bool isOneRank(const Kernel& kernel) {
  return contains(kernel.name, "oneRankReduce");
}

// The version of the NCCL that brought the kernel, as its library tells it; 0 when it does not.
int versionOf(const Kernel& kernel, std::string& file) {
  Dl_info info{};
  if (dladdr(kernel.code, &info) == 0 || info.dli_fname == nullptr) return 0;
  file = info.dli_fname;
  void* library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen(nullptr, RTLD_LAZY);
  auto* const tell = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  int version = 0;
  if (tell == nullptr || tell(&version) != 0) version = 0;
  dlclose(library);
  return version;
}

struct Origin {
  int version = 0;
  std::string file;
};

// Looked up once for each library: the answer does not change.
Origin originOf(const Kernel& kernel) {
  static auto* const lock = &immortal<std::mutex>();
  static auto* const known = &immortal<std::map<const void*, Origin>>();
  const std::lock_guard guard(*lock);
  auto [found, fresh] = known->try_emplace(kernel.code);
  if (fresh) found->second.version = versionOf(kernel, found->second.file);
  return found->second;
}

// oneRankReduce<FuncPreMulSum<T>>: the mangled type.
std::string oneRankType(const std::string& name) {
  static constexpr std::pair<const char*, const char*> kTypes[] = {
      {"FuncPreMulSumIaE", "i8"},        {"FuncPreMulSumIhE", "u8"},
      {"FuncPreMulSumIiE", "i32"},       {"FuncPreMulSumIjE", "u32"},
      {"FuncPreMulSumIlE", "i64"},       {"FuncPreMulSumImE", "u64"},
      {"FuncPreMulSumI6__halfE", "f16"}, {"FuncPreMulSumIfE", "f32"},
      {"FuncPreMulSumIdE", "f64"},       {"FuncPreMulSumI13__nv_bfloat16E", "bf16"}};
  for (const auto& [mangled, type] : kTypes) {
    if (contains(name, mangled)) return type;
  }
  return "";
}

Result refuse(const Kernel& kernel, const std::string& why) {
  report("kernel " + kernel.name + " cannot be played: " + why);
  return kNotSupported;
}

}  // namespace

void failKernel(const std::string& why) {
  report("a kernel failed: " + why);
  failure = kLaunchFailed;
}

Result kernelFailure() {
  return failure;
}

bool gatherParameters(const Kernel& kernel, void** parameters, std::vector<char>& bytes) {
  if (!isOneRank(kernel) || parameters == nullptr) return false;
  // Target, source, number of elements, argument, and whether that is a pointer.
  constexpr size_t kSizes[] = {8, 8, 8, 8, 1};
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    const auto* const from = static_cast<const char*>(parameters[i]);
    bytes.insert(bytes.end(), from, from + kSizes[i]);
  }
  return true;
}

Result prepareLaunch(const Kernel& kernel, Launch& launch) {
  if (failure != kSuccess) return failure;
  if (isOneRank(kernel)) {
    const std::string type = oneRankType(kernel.name);
    if (type.empty()) return refuse(kernel, "its type is not known");
    launch.play = [type](Launch& run) { playOneRank(run, type); };
    return kSuccess;
  }
  if (!isNccl(kernel))
    return refuse(kernel,
                  "only NCCL's classic kernels are; symmetric ones are switched off by NCCL_WIN_ENABLE=0");
  const Origin origin = originOf(kernel);
  if (origin.version == 0)
    return refuse(kernel, "its library (" + origin.file + ") does not tell NCCL's version");
  const Layout* const layout = findLayout(origin.version);
  if (layout == nullptr) return refuse(kernel, origin.file + ": " + layoutRefusal(origin.version));
  launch.play = [layout, version = origin.version](Launch& run) { playNccl(run, *layout, version); };
  return kSuccess;
}

void playOneRank(Launch& launch, const std::string& type) {
  struct {
    void *target, *source;
    size_t count;
    uint64_t argument;
    bool isPointer;
  } given{};
  std::memcpy(&given, launch.parameters.data(),
              launch.parameters.size() < sizeof given ? launch.parameters.size() : sizeof given);
  if (given.isPointer) {
    uint64_t value = 0;
    std::memcpy(&value, view(reinterpret_cast<void*>(given.argument)),
                makeReduction("PreMulSum", type, 0)->size());
    given.argument = value;
  }
  makeReduction("PreMulSum", type, given.argument)
      ->before(view(given.target), view(given.source), given.count);
}

}  // namespace softgpu
