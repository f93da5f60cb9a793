// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "providers/ofi/compat.h"
#include "weft/result.h"

// libfabric, found and opened at run time. It stays mapped for the life of the process: its providers may own
// threads and exit handlers that cannot be undone. Immutable after open(); any thread.
namespace weft::ofi {

struct FreeInfo {
  void (*function)(fi_info*) = nullptr;
  void operator()(fi_info* info) const { function(info); }
};
using InfoPtr = std::unique_ptr<fi_info, FreeInfo>;

class Library {
 public:
  // `path` is WEFT_LIBFABRIC. Empty: the loader's path is searched, then the place of the EFA installer.
  static Result<std::shared_ptr<const Library>> open(const std::string& path);
  // Opens the first of these files that is a usable libfabric. The error names the reason of each.
  static Result<std::shared_ptr<const Library>> openFirst(const std::vector<std::string>& names);

  InfoPtr allocateInfo() const { return duplicate(nullptr); }
  InfoPtr duplicate(const fi_info* info) const { return {dupinfo_(info), FreeInfo{freeinfo_}}; }

  // 0 and the list, or libfabric's negative error code.
  int getInfo(uint32_t api, const fi_info* hints, InfoPtr* out) const;
  int openFabric(fi_fabric_attr* attributes, FidPtr<fid_fabric>* out) const;

  uint32_t version() const { return version_(); }
  std::string versionText() const;  // "libfabric 1.17"
  std::string errorText(int64_t code) const;

 private:
  Library() = default;
  static Result<std::shared_ptr<const Library>> openOne(const std::string& name);
  Status bind(void* handle, const std::string& path);

  decltype(&fi_getinfo) getinfo_ = nullptr;
  decltype(&fi_freeinfo) freeinfo_ = nullptr;
  decltype(&fi_dupinfo) dupinfo_ = nullptr;
  decltype(&fi_fabric) fabric_ = nullptr;
  decltype(&fi_version) version_ = nullptr;
  decltype(&fi_strerror) strerror_ = nullptr;
};

}  // namespace weft::ofi
