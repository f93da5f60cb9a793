// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "src/coll/sharp_abi.h"
#include "weft/result.h"

// libsharp_coll, found and opened at run time. It stays mapped for the life of the process. Immutable after
// open(); any thread. The functions have the library's names in sharp_library.cc.
namespace weft::coll {

struct SharpLibrary {
  // `path` is WEFT_LIBSHARP. Empty: the loader's path is searched, then the place of NVIDIA's packages.
  static Result<std::shared_ptr<const SharpLibrary>> open(const std::string& path);

  // An error code of the library, in words.
  std::string words(int code) const;

  const sharp::Configuration* defaults = nullptr;
  int (*init)(sharp::JobSpec* spec, sharp::Context** out) = nullptr;
  int (*finalize)(sharp::Context* context) = nullptr;
  int (*queryCapabilities)(sharp::Context* context, sharp::Capabilities* out) = nullptr;
  int (*openComm)(sharp::Context* context, sharp::CommSpec* spec, sharp::Comm** out) = nullptr;
  int (*closeComm)(sharp::Comm* comm) = nullptr;
  int (*registerMemory)(sharp::Context* context, void* address, size_t bytes, void** out) = nullptr;
  int (*registerDmaBuf)(sharp::Context* context, void* address, size_t bytes,
                        const sharp::RegistrationOptions* options, void** out) = nullptr;  // null before 3.5
  int (*deregisterMemory)(sharp::Context* context, void* registration) = nullptr;
  int (*allReduce)(sharp::Comm* comm, sharp::Reduction* spec, void** request) = nullptr;
  int (*reduceScatter)(sharp::Comm* comm, sharp::Reduction* spec,
                       void** request) = nullptr;                                      // null before 3.0
  int (*allGather)(sharp::Comm* comm, sharp::Gather* spec, void** request) = nullptr;  // likewise
  int (*test)(void* request) = nullptr;  // not 0: the operation is finished
  int (*freeRequest)(void* request) = nullptr;
  const char* (*errorText)(int code) = nullptr;
};

}  // namespace weft::coll
