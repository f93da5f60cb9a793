// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/library.h"

#include <dlfcn.h>

#include "providers/ofi/signal_guard.h"
#include "src/base/log.h"

// Looking for libfabric, and its functions by name.
namespace weft::ofi {

namespace {

constexpr const char* kOperation = "opening libfabric";

std::vector<std::string> candidates(const std::string& path) {
  if (!path.empty()) return {path};
  return {"libfabric.so.1", "/opt/amazon/efa/lib64/libfabric.so.1", "/opt/amazon/efa/lib/libfabric.so.1"};
}

// The loader's message begins with the name of the missing file, which may be one that libfabric itself
// needs.
std::string whatToInstall(const std::string& name, const std::string& reason) {
  if (reason.starts_with(name))
    return "Install one (Debian: libfabric1, RHEL: libfabric, EFA: the EFA installer)";
  return name +
         " is there, but not what it needs: install that (Debian: libibverbs1 and ibverbs-providers have "
         "libibverbs.so.1 and libefa.so.1; EFA: the EFA installer has both)";
}

template <class Function>
Status find(void* handle, const char* name, const std::string& path, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(handle, name));
  if (*out) return {};
  return Error(Code::unavailable, kOperation, path + " has no " + name + ": not a libfabric");
}

}  // namespace

Result<std::shared_ptr<const Library>> Library::open(const std::string& path) {
  return openFirst(candidates(path));
}

// A distribution's libfabric may be too old, while the EFA installer's, later in the list, is the one that
// the machine is used with.
Result<std::shared_ptr<const Library>> Library::openFirst(const std::vector<std::string>& names) {
  const SignalGuard guard;
  std::string reasons, remedy;
  for (const std::string& name : names) {
    auto library = openOne(name);
    if (library) return library;
    const std::string& reason = library.error().detail();
    reasons += (reasons.empty() ? "" : "; ") + reason;
    if (remedy.empty()) remedy = whatToInstall(name, reason);
  }
  return Error(Code::unavailable, kOperation,
               reasons + ". " + remedy + " or set WEFT_LIBFABRIC to the path of another libfabric.so.1");
}

Result<std::shared_ptr<const Library>> Library::openOne(const std::string& name) {
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) {
    const char* reason = ::dlerror();
    return Error(Code::unavailable, kOperation, reason ? reason : name);
  }
  const auto library = std::shared_ptr<Library>(std::make_unique<Library>(Library()));
  TRY(library->bind(handle, name));
  return std::shared_ptr<const Library>(library);
}

Status Library::bind(void* handle, const std::string& path) {
  TRY(find(handle, "fi_version", path, &version_));
  if (version() < kApiVersion) {
    return Error(Code::unavailable, kOperation,
                 path + " is " + versionText() + ", and 1.17 or newer is needed");
  }
  TRY(find(handle, "fi_getinfo", path, &getinfo_));
  TRY(find(handle, "fi_freeinfo", path, &freeinfo_));
  TRY(find(handle, "fi_dupinfo", path, &dupinfo_));
  TRY(find(handle, "fi_fabric", path, &fabric_));
  return find(handle, "fi_strerror", path, &strerror_);
}

int Library::getInfo(uint32_t api, const fi_info* hints, InfoPtr* out) const {
  const SignalGuard guard;
  fi_info* list = nullptr;
  const int code = getinfo_(api, nullptr, nullptr, 0, hints, &list);
  *out = InfoPtr(list, FreeInfo{freeinfo_});
  return code;
}

int Library::openFabric(fi_fabric_attr* attributes, FidPtr<fid_fabric>* out) const {
  fid_fabric* fabric = nullptr;
  const int code = fabric_(attributes, &fabric, nullptr);
  out->reset(fabric);
  return code;
}

std::string Library::versionText() const {
  return format("libfabric %u.%u", FI_MAJOR(version()), FI_MINOR(version()));
}

std::string Library::errorText(int64_t code) const {
  const char* text = strerror_(static_cast<int>(code < 0 ? -code : code));
  return text ? text : std::to_string(code);
}

}  // namespace weft::ofi
