// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "providers/verbs/compat.h"
#include "weft/result.h"

// libibverbs, found and opened at run time. It stays mapped for the life of the process, as its drivers
// cannot be unloaded. Immutable after open(); any thread.
namespace weft::verbs {

// What libmlx5 adds for cards of the ConnectX-8 kind (mlx5dv_reg_dmabuf_mr(3)): a second PCIe function that
// reaches GPU memory past the processor. Both need rdma-core 54.
struct DataDirect {
  bool (*isSupported)(ibv_device* device) = nullptr;  // the card is libmlx5's; the others need that
  int (*sysfsPath)(ibv_context* context, char* out, size_t bytes) = nullptr;  // ENODEV: no such function
  ibv_mr* (*regDmabufMr)(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access,
                         int direct) = nullptr;
};

struct Library {
  // `path` is WEFT_LIBIBVERBS; empty: the loader's path is searched.
  static Result<std::shared_ptr<const Library>> open(const std::string& path);

  // Each function as libibverbs has it. Types are spelled out where the header hides a function behind a
  // macro.
  ibv_device** (*getDeviceList)(int* count) = nullptr;
  void (*freeDeviceList)(ibv_device** list) = nullptr;
  const char* (*getDeviceName)(ibv_device* device) = nullptr;
  ibv_context* (*openDevice)(ibv_device* device) = nullptr;
  int (*closeDevice)(ibv_context* context) = nullptr;
  int (*queryDevice)(ibv_context* context, ibv_device_attr* out) = nullptr;
  ssize_t (*queryGidTable)(ibv_context* context, ibv_gid_entry* entries, size_t most, uint32_t flags,
                           size_t entryBytes) = nullptr;  // null before rdma-core 32
  ibv_pd* (*allocPd)(ibv_context* context) = nullptr;
  int (*deallocPd)(ibv_pd* pd) = nullptr;
  ibv_mr* (*regMr)(ibv_pd* pd, void* address, size_t length, int access) = nullptr;
  ibv_mr* (*regMrIova2)(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                        unsigned int access) = nullptr;  // null before rdma-core 28: no relaxed ordering
  ibv_mr* (*regDmabufMr)(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                         int access) = nullptr;  // null before rdma-core 34
  // The calls of the libmlx5 that libibverbs has loaded, once it was asked for its devices; null: none.
  const DataDirect* (*dataDirect)() = nullptr;
  int (*deregMr)(ibv_mr* mr) = nullptr;
  ibv_cq* (*createCq)(ibv_context* context, int entries, void* owner, ibv_comp_channel* channel,
                      int vector) = nullptr;
  int (*destroyCq)(ibv_cq* cq) = nullptr;
  ibv_srq* (*createSrq)(ibv_pd* pd, ibv_srq_init_attr* attributes) = nullptr;
  int (*destroySrq)(ibv_srq* srq) = nullptr;
  ibv_qp* (*createQp)(ibv_pd* pd, ibv_qp_init_attr* attributes) = nullptr;
  int (*modifyQp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask) = nullptr;
  int (*destroyQp)(ibv_qp* qp) = nullptr;
  int (*queryEce)(ibv_qp* qp, Ece* out) = nullptr;  // null before rdma-core 31, and so is the next
  int (*setEce)(ibv_qp* qp, Ece* wanted) = nullptr;
  int (*getAsyncEvent)(ibv_context* context, ibv_async_event* out) = nullptr;
  void (*ackAsyncEvent)(ibv_async_event* event) = nullptr;

  // The sysfs directory of the card's second function; empty: it has none.
  std::string directPath(ibv_device* device, ibv_context* context) const;

 private:
  Status bind(void* handle, const std::string& path);
};

}  // namespace weft::verbs
