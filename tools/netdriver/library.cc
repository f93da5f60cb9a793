// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/library.h"

#include <algorithm>
#include <dlfcn.h>
#include <filesystem>
#include <link.h>
#include <optional>

#include "nccl/net.h"
#include "tools/netdriver/table_net.h"

namespace weft::netdriver {

namespace {

constexpr const char* kFileName = "libnccl-net-weft.so";
constexpr const char* kBaselineName = "libnccl-net-plain-sockets.so";

template <class Table>
std::unique_ptr<Net> makeNet(void* symbol, int abi) {
  return std::make_unique<TableNet<Table>>(static_cast<const Table*>(symbol), abi);
}

std::unique_ptr<Net> makeNet(void* symbol, int abi) {
  switch (abi) {
    case 12:
      return makeNet<ncclNet_v12_t>(symbol, abi);
    case 11:
      return makeNet<ncclNet_v11_t>(symbol, abi);
    case 10:
      return makeNet<ncclNet_v10_t>(symbol, abi);
    case 9:
      return makeNet<ncclNet_v9_t>(symbol, abi);
    case 8:
      return makeNet<ncclNet_v8_t>(symbol, abi);
    case 7:
      return makeNet<ncclNet_v7_t>(symbol, abi);
    default:
      return makeNet<ncclNet_v6_t>(symbol, abi);
  }
}

std::string symbolName(int abi) {
  return "ncclNetPlugin_v" + std::to_string(abi);
}

std::string loaderMessage() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown loader error";
}

}  // namespace

Result<std::unique_ptr<Library>> Library::open(const std::string& path, int abi) {
  auto library = std::make_unique<Library>(Key{});
  library->handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  // A bare name is for the loader to search; a file of that name here is what most people mean.
  std::error_code ignored;
  const bool bare = path.find('/') == std::string::npos && std::filesystem::is_regular_file(path, ignored);
  if (library->handle_ == nullptr && bare)
    library->handle_ = dlopen(("./" + path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library->handle_ == nullptr) return Error(Code::unavailable, "load plugin", loaderMessage());
  link_map* map = nullptr;
  const bool known = dlinfo(library->handle_, RTLD_DI_LINKMAP, &map) == 0;
  library->path_ = known ? map->l_name : path;
  TRY(library->pickTable(abi));
  library->pickOneSided();
  return library;
}

Library::~Library() {
  net_.reset();
  rma_.reset();
  if (handle_ != nullptr) dlclose(handle_);
}

const ncclCollNet_v12_t* Library::offload() const {
  return static_cast<const ncclCollNet_v12_t*>(dlsym(handle_, "ncclCollNetPlugin_v12"));
}

Status Library::pickTable(int abi) {
  for (int version = kNewestAbi; version >= kOldestAbi; --version) {
    if (dlsym(handle_, symbolName(version).c_str()) != nullptr) abis_.push_back(version);
  }
  if (abis_.empty())
    return Error(Code::unavailable, "load plugin", path_ + " exports no ncclNetPlugin_v6 to v12");
  const int wanted = abi == 0 ? abis_.front() : abi;
  if (std::find(abis_.begin(), abis_.end(), wanted) == abis_.end())
    return Error(Code::unavailable, "load plugin", path_ + " does not export " + symbolName(wanted));
  net_ = makeNet(dlsym(handle_, symbolName(wanted).c_str()), wanted);
  return {};
}

void Library::pickOneSided() {
  for (int version = kNewestRma; version >= kOldestRma && !rma_; --version) {
    const void* symbol = dlsym(handle_, ("ncclRmaPlugin_v" + std::to_string(version)).c_str());
    if (symbol != nullptr) rma_ = makeRmaTable(symbol, version);
  }
}

namespace {

// The first of these places, seen from the running program, that has the file.
std::optional<std::string> beside(const char* file, std::initializer_list<const char*> places) {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const char* place : places) {
    const auto candidate = program / place / file;
    if (std::filesystem::exists(candidate, ignored)) return candidate.lexically_normal().string();
  }
  return std::nullopt;
}

}  // namespace

std::string defaultPluginPath() {
  return beside(kFileName, {".", "../plugin", "../../plugin", "../lib", "../lib/x86_64-linux-gnu",
                            "../lib/aarch64-linux-gnu", "../lib64"})
      .value_or(kFileName);
}

Result<std::string> baselinePluginPath() {
  auto found = beside(kBaselineName,
                      {".", "plain_sockets", "../../tools/plain_sockets", "../lib/weft",
                       "../lib/x86_64-linux-gnu/weft", "../lib/aarch64-linux-gnu/weft", "../lib64/weft"});
  if (found) return std::move(*found);
  return Error(Code::unavailable, "open baseline",
               std::string(kBaselineName) +
                   " is not where this command looks: beside it, or in the folder lib/weft of its prefix; "
                   "install it with the command, or name another plugin with --compare");
}

}  // namespace weft::netdriver
