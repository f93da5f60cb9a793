// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/info/image.h"

#include <algorithm>
#include <dlfcn.h>
#include <filesystem>
#include <link.h>
#include <sys/resource.h>

#include <fmt/format.h>
#include <gnu/libc-version.h>

#include "src/base/config.h"
#include "src/base/version.h"
#include "tools/info/nccl_copies.h"
#include "tools/netdriver/library.h"

namespace weft::info {

namespace {

namespace fs = std::filesystem;
using Kind = Finding::Kind;

constexpr const char* kEfaFolders[] = {"/opt/amazon/efa/lib64", "/opt/amazon/efa/lib"};

// A library as the loader finds it, without staying loaded.
struct Opened {
  std::string path;   // the file behind its links; empty: not found
  std::string error;  // the loader's words then
  unsigned fabricVersion = 0;
};

// libfabric tells its version by fi_version(): major in the upper half.
Opened open(const std::string& name) {
  Opened opened;
  void* handle = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) {
    const char* words = ::dlerror();
    opened.error = words ? words : "unknown";
    return opened;
  }
  link_map* map = nullptr;
  std::error_code ignored;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map)
    opened.path = fs::canonical(map->l_name, ignored).string();
  using VersionCall = unsigned (*)();
  if (const auto call = reinterpret_cast<VersionCall>(::dlsym(handle, "fi_version")))
    opened.fabricVersion = call();
  ::dlclose(handle);
  return opened;
}

Finding plugin() {
  const std::string path = netdriver::defaultPluginPath();
  const auto library = netdriver::Library::open(path);
  if (!library)
    return {
        Kind::bad, "plugin",
        fmt::format("{}; install libnccl-net-weft.so beside the weft command", library.error().message())};
  const Opened byName = open("libnccl-net-weft.so");
  const std::string file = (*library)->path();
  if (byName.path.empty())
    return {Kind::note, "plugin",
            fmt::format("{}; not on the loader's path, so jobs set NCCL_NET_PLUGIN={}", file, file)};
  return {Kind::good, "plugin", fmt::format("{}; jobs set NCCL_NET_PLUGIN=weft", byName.path)};
}

Finding libc() {
  const std::string version = gnu_get_libc_version();
  return {Kind::good, "glibc", version};
}

Finding configurationFile() {
  const auto file = loadConfigFile(environmentValue);
  if (!file) return {Kind::bad, "settings", file.error().message()};
  const auto config = readConfig(environmentValue, *file);
  if (!config) return {Kind::bad, "settings", config.error().message()};
  const std::vector<std::string> warnings = environmentWarnings();
  if (!warnings.empty()) return {Kind::note, "settings", warnings.front()};
  return {Kind::good, "settings",
          file->path.empty() ? "no configuration file; all settings have their defaults" : file->path};
}

Opened findLibfabric() {
  const auto config = readConfigFromEnvironment();
  if (config && !config->libfabric.empty()) return open(config->libfabric);
  Opened opened = open("libfabric.so.1");
  for (const char* folder : kEfaFolders)
    if (opened.path.empty()) opened = open(fmt::format("{}/libfabric.so.1", folder));
  return opened;
}

Finding libfabric(const Opened& opened) {
  if (opened.path.empty())
    return {Kind::note, "libfabric", "not here: no EFA (Debian: libfabric1; EC2: the EFA installer)"};
  const unsigned major = opened.fabricVersion >> 16;
  const unsigned minor = opened.fabricVersion & 0xffff;
  const std::string text = fmt::format("{}.{}, {}", major, minor, opened.path);
  if (major == 1 && minor < 17)
    return {Kind::note, "libfabric", text + "; older than 1.17, so it is not used"};
  return {Kind::good, "libfabric", text};
}

bool hasVerbsDriver(std::string_view name) {
  std::error_code ignored;
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/lib/aarch64-linux-gnu/libibverbs",
                             "/usr/lib64/libibverbs", "/usr/lib/libibverbs"})
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
      if (entry.path().filename().string().starts_with(fmt::format("lib{}-rdmav", name))) return true;
  return false;
}

Finding verbs(const Opened& opened) {
  if (opened.path.empty())
    return {Kind::note, "rdma-core",
            "no libibverbs.so.1: no InfiniBand, no RoCE, no EFA (Debian: libibverbs1 ibverbs-providers)"};
  const std::string file = fs::path(opened.path).filename().string();
  if (!hasVerbsDriver("mlx5"))
    return {Kind::note, "rdma-core",
            fmt::format("{}, without a driver for mlx5 cards (Debian: ibverbs-providers)", file)};
  return {Kind::good, "rdma-core", fmt::format("{}, with a driver for mlx5 cards", file)};
}

Finding efa(const Opened& fabric, const Opened& ibverbs) {
  std::vector<std::string> missing;
  if (fabric.path.empty()) missing.emplace_back("libfabric");
  if (ibverbs.path.empty()) missing.emplace_back("libibverbs");
  if (open("libefa.so.1").path.empty()) missing.emplace_back("libefa.so.1");
  if (!hasVerbsDriver("efa")) missing.emplace_back("the efa driver of rdma-core");
  if (missing.empty()) return {Kind::good, "EFA", fmt::format("by {}", fabric.path)};
  return {Kind::note, "EFA", fmt::format("will not work here: lacks {}", fmt::join(missing, ", "))};
}

// Plain sockets need no library, so an image always has one network.
Finding networks(const Opened& fabric, const Opened& ibverbs) {
  std::string text = "TCP over plain sockets";
  if (!ibverbs.path.empty()) text += ", InfiniBand and RoCE";
  if (!fabric.path.empty()) text += ", and what libfabric has";
  return {Kind::good, "network", text + "; which of them has cards shows where the job runs"};
}

Finding lockedMemory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {Kind::note, "memlock", "cannot be asked"};
  if (limit.rlim_cur == RLIM_INFINITY) return {Kind::good, "memlock", "unlimited"};
  return {Kind::note, "memlock",
          fmt::format("{} KiB here; where the job runs it must be unlimited for EFA and InfiniBand (docker: "
                      "--ulimit memlock=-1; "
                      "systemd: LimitMEMLOCK=infinity)",
                      limit.rlim_cur / 1024)};
}

Finding describe(const NcclCopy& copy) {
  const NcclVersion& version = copy.version;
  if (version.minor == 0)
    return {Kind::note, "NCCL", fmt::format("{} does not say its version", copy.path.string())};
  const std::string text =
      fmt::format("{}.{}.{}, {}", version.major, version.minor, version.patch, copy.path.string());
  const int table = tableFor(version);
  if (table == 0)
    return {Kind::bad, "NCCL", text + ": too old for this plugin, which begins with NCCL 2.13.4"};
  return {Kind::good, "NCCL", fmt::format("{}: uses the plugin's table v{}", text, table)};
}

const char* word(Kind kind) {
  static constexpr const char* kWords[] = {"ok", "note", "bad"};
  return kWords[static_cast<size_t>(kind)];
}

}  // namespace

std::vector<Finding> lookAtImage() {
  const Opened fabric = findLibfabric();
  const Opened ibverbs = open("libibverbs.so.1");
  std::vector<Finding> findings = {plugin(),
                                   libc(),
                                   configurationFile(),
                                   libfabric(fabric),
                                   verbs(ibverbs),
                                   efa(fabric, ibverbs),
                                   networks(fabric, ibverbs),
                                   lockedMemory()};
  const std::vector<NcclCopy> copies = findNccl();
  for (const NcclCopy& copy : copies) findings.push_back(describe(copy));
  if (copies.empty())
    findings.push_back({Kind::note, "NCCL",
                        "no copy found in the usual places; one may be inside a framework's own library"});
  return findings;
}

std::string imageText(const std::vector<Finding>& findings) {
  std::string text = fmt::format("{} in this image\n\n", versionText());
  for (const Finding& finding : findings)
    text += fmt::format("{:<5} {:<10} {}\n", word(finding.kind), finding.what, finding.says);
  return text;
}

Json imageJson(const std::vector<Finding>& findings) {
  Json rows = Json::array();
  for (const Finding& finding : findings)
    rows.append({{"kind", word(finding.kind)}, {"what", finding.what}, {"says", finding.says}});
  return {{"version", versionText()}, {"findings", std::move(rows)}, {"usable", imageStatus(findings) == 0}};
}

int imageStatus(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& one) { return one.kind == Kind::bad; })
             ? 1
             : 0;
}

}  // namespace weft::info
