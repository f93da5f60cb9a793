// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

// The copies of NCCL in an image, and which of the plugin's tables each of them uses. Reads files; loads
// nothing.
namespace weft::info {

struct NcclVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;
};

// "2.28.9"; 0.0.0 when the text does not begin with a version.
NcclVersion parseNcclVersion(std::string_view text);

// The newest table of the plugin that this NCCL looks for; 0: it is older than all of them.
int tableFor(const NcclVersion& version);

struct NcclCopy {
  std::filesystem::path path;
  NcclVersion version;  // 0.0.0: the file does not say
};

// By the loader's folders, CUDA's, and the places where Python packages keep it.
std::vector<NcclCopy> findNccl();

}  // namespace weft::info
