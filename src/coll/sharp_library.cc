// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/sharp_library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <utility>

#include "src/base/log.h"

// Opening libsharp_coll, and its functions by name.
namespace weft::coll {

namespace {

constexpr const char* kOpening = "opening libsharp_coll";
// In the order in which they are tried.
constexpr const char* kPlaces[] = {"libsharp_coll.so.5", "libsharp_coll.so",
                                   "/opt/mellanox/sharp/lib/libsharp_coll.so"};

// NVIDIA's plugin sets these before it opens the library, which reads them as it is loaded; the user's own
// stand. Without SHARP_COLL_ENABLE_SAT the switches neither gather nor scatter.
void setDefaults() {
  constexpr std::pair<const char*, const char*> kDefaults[] = {
      {"SHARP_COLL_ENABLE_SAT", "1"},
      {"SHARP_COLL_NUM_COLL_GROUP_RESOURCE_ALLOC_THRESHOLD", "0"},
      {"SHARP_COLL_LOCK_ON_COMM_INIT", "1"},
      {"SHARP_COLL_LOG_LEVEL", "3"}};
  for (const auto& [name, value] : kDefaults) (void)::setenv(name, value, 0);
}

void* openAt(const std::string& path, std::string* reason) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle && reason->empty()) *reason = ::dlerror();
  return handle;
}

// Looks up functions, and keeps the name of the first needed one that is missing.
struct Finder {
  void* handle;
  std::string missing;

  template <class Pointer>
  void optional(const char* name, Pointer* out) const {
    *out = reinterpret_cast<Pointer>(::dlsym(handle, name));
  }
  template <class Pointer>
  void needed(const char* name, Pointer* out) {
    optional(name, out);
    if (!*out && missing.empty()) missing = name;
  }
};

}  // namespace

Result<std::shared_ptr<const SharpLibrary>> SharpLibrary::open(const std::string& path) {
  setDefaults();
  std::string reason;
  void* handle = nullptr;
  if (!path.empty()) handle = openAt(path, &reason);
  for (const char* place : kPlaces)
    if (path.empty() && !handle) handle = openAt(place, &reason);
  if (!handle)
    return Error(Code::unavailable, kOpening,
                 reason + ". It comes with NVIDIA's DOCA or HPC-X; set WEFT_LIBSHARP to its path");
  auto library = std::make_shared<SharpLibrary>();
  Finder find{handle, {}};
  find.needed("sharp_coll_default_config", &library->defaults);
  find.needed("sharp_coll_init", &library->init);
  find.needed("sharp_coll_finalize", &library->finalize);
  find.needed("sharp_coll_caps_query", &library->queryCapabilities);
  find.needed("sharp_coll_comm_init", &library->openComm);
  find.needed("sharp_coll_comm_destroy", &library->closeComm);
  find.needed("sharp_coll_reg_mr", &library->registerMemory);
  find.needed("sharp_coll_dereg_mr", &library->deregisterMemory);
  find.needed("sharp_coll_do_allreduce_nb", &library->allReduce);
  find.needed("sharp_coll_req_test", &library->test);
  find.needed("sharp_coll_req_free", &library->freeRequest);
  find.needed("sharp_coll_strerror", &library->errorText);
  find.optional("sharp_coll_reg_mr_v2", &library->registerDmaBuf);
  find.optional("sharp_coll_do_reduce_scatter_nb", &library->reduceScatter);
  find.optional("sharp_coll_do_allgather_nb", &library->allGather);
  if (!find.missing.empty())
    return Error(
        Code::unavailable, kOpening,
        "it has no " + find.missing + ": not NVIDIA's, or older than 2.0; set WEFT_LIBSHARP to another");
  return std::shared_ptr<const SharpLibrary>(std::move(library));
}

std::string SharpLibrary::words(int code) const {
  const char* text = errorText(code);
  return format("%s (%d)", text ? text : "an error without words", code);
}

}  // namespace weft::coll
