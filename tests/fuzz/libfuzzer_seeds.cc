// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "src/base/config.h"
#include "tests/fuzz/target.h"

// Where libFuzzer is the driver: hands a target's well-formed inputs to it as files, since it starts from
// nothing else. WEFT_TEST_SEEDS names the folder; without it nothing is written.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* folder = weft::environmentValue("WEFT_TEST_SEEDS");
  if (folder == nullptr) return 0;
  std::filesystem::create_directories(folder);
  size_t number = 0;
  for (const weft::fuzz::Input& input : weft::fuzz::seeds()) {
    std::ofstream file(std::filesystem::path(folder) / ("seed-" + std::to_string(number++)),
                       std::ios::binary);
    file.write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
  }
  return 0;
}
