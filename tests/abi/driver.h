// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <utility>
#include <vector>

#include "nccl/net.h"
#include "src/base/config.h"
#include "tests/abi/log_recorder.h"
#include "tests/support/catch.h"

// Drives one version's table the way NCCL does, with the differences between the versions hidden; written
// once for all of them. One per test: it loads the library named by PLUGIN_UNDER_TEST and unloads it at the
// end, and a warning nobody announced fails the test. One thread unless a test says otherwise.
namespace weft::abi {

template <class Net>
constexpr int kVersion = 0;
template <>
inline constexpr int kVersion<ncclNet_v6_t> = 6;
template <>
inline constexpr int kVersion<ncclNet_v7_t> = 7;
template <>
inline constexpr int kVersion<ncclNet_v8_t> = 8;
template <>
inline constexpr int kVersion<ncclNet_v9_t> = 9;
template <>
inline constexpr int kVersion<ncclNet_v10_t> = 10;
template <>
inline constexpr int kVersion<ncclNet_v11_t> = 11;
template <>
inline constexpr int kVersion<ncclNet_v12_t> = 12;

template <class Net>
constexpr bool kHasContext = kVersion<Net> >= 11;
template <class Net>
constexpr bool kHasProfiler = kVersion<Net> >= 10;

#define ALL_TABLES \
  ncclNet_v6_t, ncclNet_v7_t, ncclNet_v8_t, ncclNet_v9_t, ncclNet_v10_t, ncclNet_v11_t, ncclNet_v12_t

inline ncclResult_t noProfiler(void**, int, void*, int64_t, void*) {
  return ncclSuccess;
}

using Handle = std::array<std::byte, NCCL_NET_HANDLE_MAXSIZE>;

inline void* openPlugin() {
  return dlopen(weft::environmentValue("PLUGIN_UNDER_TEST"), RTLD_NOW | RTLD_LOCAL);
}

template <class Net>
const Net* tableOf(void* library) {
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(kVersion<Net>);
  return static_cast<const Net*>(dlsym(library, symbol.c_str()));
}

// Sizes of messages as this version passes them.
template <class Net>
using MessageSize = std::conditional_t<(kVersion<Net> < 9), int, size_t>;
template <class Net>
using RegistrationSize = std::conditional_t<(kVersion<Net> < 8), int, size_t>;

// The struct a table's getProperties fills.
template <class P>
P propertiesOf(ncclResult_t (*)(int, P*));
template <class Net>
using Properties = decltype(propertiesOf(std::declval<Net>().getProperties));

template <class Net>
class Driver {
 public:
  explicit Driver(const char* provider = "loop", const char* rails = "1") {
    setenv("WEFT_PROVIDER", provider, 1);
    setenv("WEFT_LOOP_RAILS", rails, 1);
    forgetLines();
    load();
  }

  ~Driver() {
    unload();
    if (!warningsExpected) CHECK(linesOf(NCCL_LOG_WARN) == "");
  }

  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  void load() {
    library_ = openPlugin();
    REQUIRE(library_ != nullptr);
    net = tableOf<Net>(library_);
    REQUIRE(net != nullptr);
  }

  void unload() {
    if (library_) dlclose(library_);
    library_ = nullptr;
  }

  ncclResult_t init(ncclDebugLogger_t logger = &recordLine, ncclProfilerCallback_t profiler = &noProfiler) {
    if constexpr (kHasContext<Net>) {
      ncclNetCommConfig_v11_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
      return net->init(&context, 0x1234, &config, logger, profiler);
    } else if constexpr (kHasProfiler<Net>) {
      return net->init(logger, profiler);
    } else {
      return net->init(logger);
    }
  }

  ncclResult_t finalize() {
    if constexpr (kHasContext<Net>) return net->finalize(std::exchange(context, nullptr));
    return ncclSuccess;
  }

  ncclResult_t listen(int device, Handle* handle, void** listenComm) {
    if constexpr (kHasContext<Net>)
      return net->listen(context, device, handle->data(), listenComm);
    else
      return net->listen(device, handle->data(), listenComm);
  }

  ncclResult_t connect(int device, void* handle, void** sendComm) {
    ncclNetDeviceHandle_v7_t* none = nullptr;
    if constexpr (kHasContext<Net>) {
      return net->connect(context, device, handle, sendComm, &none);
    } else if constexpr (kVersion<Net> == 10) {
      ncclNetCommConfig_v10_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
      return net->connect(device, &config, handle, sendComm, &none);
    } else if constexpr (kVersion<Net> == 6) {
      return net->connect(device, handle, sendComm);
    } else {
      return net->connect(device, handle, sendComm, nullptr);
    }
  }

  ncclResult_t accept(void* listenComm, void** recvComm) {
    if constexpr (kVersion<Net> == 6)
      return net->accept(listenComm, recvComm);
    else
      return net->accept(listenComm, recvComm, nullptr);
  }

  ncclResult_t regMr(void* comm, void* data, size_t bytes, void** mhandle) {
    return net->regMr(comm, data, static_cast<RegistrationSize<Net>>(bytes), NCCL_PTR_HOST, mhandle);
  }

  ncclResult_t isend(void* comm, void* data, size_t bytes, int tag, void* mhandle, void** request,
                     void* phandle = nullptr) {
    const auto size = static_cast<MessageSize<Net>>(bytes);
    if constexpr (kHasProfiler<Net>)
      return net->isend(comm, data, size, tag, mhandle, phandle, request);
    else
      return net->isend(comm, data, size, tag, mhandle, request);
  }

  // The arrays are copies on this stack, gone when the call returns, as NCCL's are.
  ncclResult_t irecv(void* comm, std::vector<void*> data, std::vector<size_t> bytes, std::vector<int> tags,
                     std::vector<void*> mhandles, void** request, void* phandle = nullptr) {
    std::vector<MessageSize<Net>> sizes;
    for (const size_t n : bytes) sizes.push_back(static_cast<MessageSize<Net>>(n));
    const int n = static_cast<int>(data.size());
    std::vector<void*> phandles(data.size(), phandle);
    if constexpr (kHasProfiler<Net>)
      return net->irecv(comm, n, data.data(), sizes.data(), tags.data(), mhandles.data(),
                        phandle ? phandles.data() : nullptr, request);
    else
      return net->irecv(comm, n, data.data(), sizes.data(), tags.data(), mhandles.data(), request);
  }

  const Net* net = nullptr;
  void* context = nullptr;
  bool warningsExpected = false;

 private:
  void* library_ = nullptr;
};

}  // namespace weft::abi
