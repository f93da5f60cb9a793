// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/record/wrapped.h"

#include <dlfcn.h>
#include <memory>
#include <unistd.h>

#include "src/base/config.h"
#include "tools/record/recorder.h"

namespace weft::record {

namespace {

constexpr const char* kDefault = "weft";

// Where this library lies, with a slash behind it.
std::string ownFolder() {
  Dl_info info{};
  static const char place = 0;
  if (dladdr(&place, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

// As NCCL reads NCCL_NET_PLUGIN: a file, or NAME of libnccl-net-NAME.so. That one is looked for beside us
// first, in an install tree as in a build tree.
std::string fileOf(const std::string& name) {
  if (name.find('/') != std::string::npos || name.find(".so") != std::string::npos) return name;
  const std::string file = "libnccl-net-" + name + ".so";
  for (const char* place : {"", "../../plugin/"})
    if (const std::string path = ownFolder() + place + file; access(path.c_str(), R_OK) == 0) return path;
  return file;
}

}  // namespace

Wrapped& Wrapped::instance() {
  static Wrapped* const wrapped = std::make_unique<Wrapped>().release();
  return *wrapped;
}

Wrapped::Wrapped() {
  open();
}

void Wrapped::open() {
  const char* named = environmentValue("WEFT_RECORD_PLUGIN");
  path_ = fileOf(named != nullptr && *named != '\0' ? named : kDefault);
  library_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    const char* why = dlerror();
    error_ = "the plugin to record cannot be loaded: " + std::string(why != nullptr ? why : path_) +
             "; WEFT_RECORD_PLUGIN takes its name or its file";
  } else if (versions().empty()) {
    error_ =
        path_ + " exports no network table of version 6 to 12; WEFT_RECORD_PLUGIN takes the plugin to record";
  } else if (isOurselves()) {
    error_ = "WEFT_RECORD_PLUGIN names the recorder itself; it takes the plugin to record, weft by default";
  } else {
    error_ = Recorder::instance().open(path_.substr(path_.rfind('/') + 1));
  }
}

bool Wrapped::isOurselves() const {
  Dl_info own{};
  Dl_info theirs{};
  for (int version = 6; version <= 12; ++version)
    if (void* found = table(version); found != nullptr && dladdr(found, &theirs) != 0)
      return dladdr(reinterpret_cast<void*>(&ownFolder), &own) != 0 && own.dli_fbase == theirs.dli_fbase;
  return false;
}

void* Wrapped::table(int version) const {
  return library_ != nullptr ? dlsym(library_, ("ncclNetPlugin_v" + std::to_string(version)).c_str())
                             : nullptr;
}

void* Wrapped::collTable(int version) const {
  return library_ != nullptr ? dlsym(library_, ("ncclCollNetPlugin_v" + std::to_string(version)).c_str())
                             : nullptr;
}

void* Wrapped::rmaTable(int version) const {
  return library_ != nullptr ? dlsym(library_, ("ncclRmaPlugin_v" + std::to_string(version)).c_str())
                             : nullptr;
}

void* Wrapped::usable(void* table, int version, const char* kind) const {
  if (table != nullptr && error_.empty()) return table;
  Recorder::instance().inform(path_ + " has no table " + kind + " of version " + std::to_string(version) +
                              ": nothing of that is recorded");
  return nullptr;
}

std::string Wrapped::versions() const {
  std::string text;
  for (int version = 6; version <= 12; ++version)
    if (table(version) != nullptr) text += (text.empty() ? "v" : ", v") + std::to_string(version);
  return text;
}

}  // namespace weft::record
