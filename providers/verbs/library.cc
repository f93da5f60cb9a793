// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/library.h"

#include <climits>
#include <dlfcn.h>

#include "src/base/log.h"

// Opening libibverbs, and its functions by name and version.
namespace weft::verbs {

namespace {

constexpr const char* kOpening = "opening libibverbs";

// Old versions of some functions have other structures, so the version that fits the header is named.
struct Finder {
  void* handle;
  const std::string& path;

  template <class Function>
  void optional(const char* name, const char* version, Function* out) const {
    *out = reinterpret_cast<Function>(::dlvsym(handle, name, version));
  }
  template <class Function>
  Status needed(const char* name, Function* out) const {
    optional(name, "IBVERBS_1.1", out);
    if (*out) return {};
    return Error(
        Code::unavailable, kOpening,
        path + " has no " + name + ": not rdma-core's; set WEFT_LIBIBVERBS to another libibverbs.so.1");
  }
};

// libibverbs loads the drivers of its cards itself. A copy that it has not loaded would know none of them, so
// none is loaded here.
DataDirect findDataDirect() {
  DataDirect calls;
  const std::string name = "libmlx5.so.1";
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  if (!handle) return calls;
  const Finder find{handle, name};
  find.optional("mlx5dv_is_supported", "MLX5_1.8", &calls.isSupported);
  find.optional("mlx5dv_get_data_direct_sysfs_path", "MLX5_1.25", &calls.sysfsPath);
  find.optional("mlx5dv_reg_dmabuf_mr", "MLX5_1.25", &calls.regDmabufMr);
  return calls;
}

const DataDirect* dataDirectOfProcess() {
  static const DataDirect calls = findDataDirect();
  return calls.isSupported && calls.sysfsPath && calls.regDmabufMr ? &calls : nullptr;
}

}  // namespace

Result<std::shared_ptr<const Library>> Library::open(const std::string& path) {
  const std::string name = path.empty() ? "libibverbs.so.1" : path;
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) {
    const char* reason = ::dlerror();
    return Error(Code::unavailable, kOpening,
                 std::string(reason ? reason : name.c_str()) +
                     ". Install it (Debian: libibverbs1 and ibverbs-providers, RHEL: libibverbs) or set "
                     "WEFT_LIBIBVERBS to the path of libibverbs.so.1");
  }
  const auto library = std::make_shared<Library>();
  TRY(library->bind(handle, name));
  // Forked children of the application must not take pages from under the card (ibv_fork_init(3)). Recent
  // kernels need no such call.
  if (const auto forkInit = reinterpret_cast<int (*)()>(::dlvsym(handle, "ibv_fork_init", "IBVERBS_1.1")))
    (void)forkInit();
  return std::shared_ptr<const Library>(library);
}

Status Library::bind(void* handle, const std::string& path) {
  const Finder find{handle, path};
  TRY(find.needed("ibv_get_device_list", &getDeviceList));
  TRY(find.needed("ibv_free_device_list", &freeDeviceList));
  TRY(find.needed("ibv_get_device_name", &getDeviceName));
  TRY(find.needed("ibv_open_device", &openDevice));
  TRY(find.needed("ibv_close_device", &closeDevice));
  TRY(find.needed("ibv_query_device", &queryDevice));
  TRY(find.needed("ibv_alloc_pd", &allocPd));
  TRY(find.needed("ibv_dealloc_pd", &deallocPd));
  TRY(find.needed("ibv_reg_mr", &regMr));
  TRY(find.needed("ibv_dereg_mr", &deregMr));
  TRY(find.needed("ibv_create_cq", &createCq));
  TRY(find.needed("ibv_destroy_cq", &destroyCq));
  TRY(find.needed("ibv_create_srq", &createSrq));
  TRY(find.needed("ibv_destroy_srq", &destroySrq));
  TRY(find.needed("ibv_create_qp", &createQp));
  TRY(find.needed("ibv_modify_qp", &modifyQp));
  TRY(find.needed("ibv_destroy_qp", &destroyQp));
  TRY(find.needed("ibv_get_async_event", &getAsyncEvent));
  TRY(find.needed("ibv_ack_async_event", &ackAsyncEvent));
  find.optional("_ibv_query_gid_table", "IBVERBS_1.11", &queryGidTable);
  find.optional("ibv_reg_mr_iova2", "IBVERBS_1.8", &regMrIova2);
  find.optional("ibv_reg_dmabuf_mr", "IBVERBS_1.12", &regDmabufMr);
  dataDirect = dataDirectOfProcess;
  find.optional("ibv_query_ece", "IBVERBS_1.10", &queryEce);
  find.optional("ibv_set_ece", "IBVERBS_1.10", &setEce);
  return {};
}

// libmlx5 says where it is below /sys, with or without a slash in front
// (mlx5dv_get_data_direct_sysfs_path(3)).
std::string Library::directPath(ibv_device* device, ibv_context* context) const {
  const DataDirect* calls = dataDirect ? dataDirect() : nullptr;
  if (!calls || !calls->isSupported(device)) return {};
  std::string path(PATH_MAX, '\0');
  if (calls->sysfsPath(context, path.data(), path.size()) != 0) return {};
  return (path.front() == '/' ? "/sys" : "/sys/") + std::string(path.c_str());
}

}  // namespace weft::verbs
