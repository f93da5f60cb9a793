// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/self_reference.h"

#include <dlfcn.h>
#include <mutex>
#include <utility>

// The count of references, and the library's own handle at the loader.
namespace weft::plugin {

namespace {

// `library` is the loader's handle; null: no reference is held.
constinit std::mutex mutex;
constinit int users = 0;
constinit void* library = nullptr;

// Null where the loader does not know us by name: a plugin that is linked into a program is never unmapped.
void* openSelf() {
  Dl_info self{};
  if (dladdr(&library, &self) == 0 || !self.dli_fname) return nullptr;
  return dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

}  // namespace

// The loader is called without our lock. A thread that holds the loader's lock may be initialising a library
// whose constructor calls NCCL, and so waits for our lock. Where two threads are first at once, one reference
// is too many and is given back.
SelfReference::SelfReference() {
  {
    std::lock_guard lock(mutex);
    if (library) {
      users++;
      return;
    }
  }
  void* spare = openSelf();
  {
    std::lock_guard lock(mutex);
    users++;
    if (!library) library = std::exchange(spare, nullptr);
  }
  if (spare) dlclose(spare);
}

// This is never the last reference to the code that runs: the caller got here by a handle of its own.
SelfReference::~SelfReference() {
  void* last = nullptr;
  {
    std::lock_guard lock(mutex);
    if (--users == 0) last = std::exchange(library, nullptr);
  }
  if (last) dlclose(last);
}

}  // namespace weft::plugin
