// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/nccl/meet.h"

#include <chrono>
#include <cstdio>
#include <thread>
#include <unistd.h>

namespace nccltest {

namespace {

constexpr auto kPatience = std::chrono::seconds(30);

// Under another name first: nobody reads half an id.
void writeId(const UniqueId& id, const std::string& file) {
  const std::string part = file + ".part";
  std::FILE* const to = std::fopen(part.c_str(), "wb");
  const bool written = to != nullptr && std::fwrite(&id, sizeof id, 1, to) == 1 && std::fclose(to) == 0;
  expect(written && std::rename(part.c_str(), file.c_str()) == 0 ? 0 : 1, "writing the unique id");
}

UniqueId readId(const std::string& file) {
  UniqueId id{};
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (access(file.c_str(), R_OK) != 0) {
    expect(std::chrono::steady_clock::now() < until ? 0 : 1, "waiting for rank 0's unique id");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::FILE* const from = std::fopen(file.c_str(), "rb");
  expect(from != nullptr && std::fread(&id, sizeof id, 1, from) == 1 ? 0 : 1, "reading the unique id");
  std::fclose(from);
  return id;
}

}  // namespace

UniqueId meet(bool first, const std::string& file) {
  if (!first) return readId(file);
  UniqueId id{};
  expect(nccl.getUniqueId(&id), "ncclGetUniqueId");
  writeId(id, file);
  return id;
}

}  // namespace nccltest
