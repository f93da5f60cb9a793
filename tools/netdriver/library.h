// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nccl/collnet.h"
#include "tools/netdriver/net.h"
#include "tools/netdriver/rma_table.h"
#include "weft/result.h"

// A network plugin opened the way NCCL opens it (dlopen, bound at once, local), and its tables. Unloads on
// destruction; the Net it owns dies first. Created and destroyed by one thread.
namespace weft::netdriver {

class Library {
  struct Key {};  // only open() makes one

 public:
  explicit Library(Key) {}
  static constexpr int kNewestAbi = 12;
  static constexpr int kOldestAbi = 6;

  // `abi` 0 takes the newest table there is. An error says what could not be found.
  static Result<std::unique_ptr<Library>> open(const std::string& path, int abi = 0);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  Net& net() { return *net_; }
  // Its newest table for collective offload; null where it has none.
  const ncclCollNet_v12_t* offload() const;
  // Its newest table of one-sided operations; null where it has none.
  RmaTable* oneSided() const { return rma_.get(); }
  // The file the loader took, which for a bare name is the one that it found.
  const std::string& path() const { return path_; }
  // Versions the library exports, newest first.
  const std::vector<int>& abis() const { return abis_; }

 private:
  Status pickTable(int abi);
  void pickOneSided();

  void* handle_ = nullptr;
  std::string path_;
  std::vector<int> abis_;
  std::unique_ptr<Net> net_;
  std::unique_ptr<RmaTable> rma_;
};

// Where our own plugin is: beside the running program, in the build tree or an install tree around it, or
// else its bare name, which leaves the search to the loader.
std::string defaultPluginPath();

// Where the plugin over plain sockets is that others are measured against: beside the running program, in the
// build tree or an install tree around it. An error that says so where it is not.
Result<std::string> baselinePluginPath();

}  // namespace weft::netdriver
