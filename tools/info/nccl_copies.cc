// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/info/nccl_copies.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>

namespace weft::info {

namespace {

namespace fs = std::filesystem;

// The first release that looks for each table, from NCCL's sources at its tags.
struct FirstRelease {
  int table;
  NcclVersion version;
};
constexpr FirstRelease kFirst[] = {{12, {2, 30, 3}}, {11, {2, 28, 3}}, {10, {2, 26, 2}}, {9, {2, 24, 3}},
                                   {8, {2, 20, 3}},  {7, {2, 19, 1}},  {6, {2, 13, 4}}};

constexpr int kDepth = 8;  // of a Python tree below its root

bool earlier(const NcclVersion& a, const NcclVersion& b) {
  if (a.major != b.major) return a.major < b.major;
  return a.minor != b.minor ? a.minor < b.minor : a.patch < b.patch;
}

// libnccl.so.2.28.9 says it by its name, the one that Python packages bring only by a string inside.
NcclVersion versionOf(const fs::path& path) {
  constexpr std::string_view kBefore = "libnccl.so.";
  const std::string name = path.filename().string();
  const std::string_view behind = std::string_view(name).substr(std::min(kBefore.size(), name.size()));
  if (const NcclVersion named = parseNcclVersion(behind); named.minor != 0) return named;

  constexpr std::string_view kSays = "NCCL version ";
  std::ifstream file(path, std::ios::binary);
  std::string window;
  std::string chunk(size_t{4} << 20, '\0');
  while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || file.gcount() > 0) {
    window.append(chunk, 0, static_cast<size_t>(file.gcount()));
    for (size_t at = window.find(kSays); at != std::string::npos; at = window.find(kSays, at + 1)) {
      const NcclVersion said = parseNcclVersion(std::string_view(window).substr(at + kSays.size()));
      if (said.minor != 0) return said;
    }
    window.erase(0, window.size() - std::min<size_t>(window.size(), 64));  // one cut by the end of a chunk
  }
  return {};
}

void lookInto(const fs::path& folder, std::set<fs::path>* found) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (!entry.path().filename().string().starts_with("libnccl.so")) continue;
    const fs::path real = fs::canonical(entry.path(), ignored);
    if (!real.empty() && fs::is_regular_file(real, ignored)) found->insert(real);
  }
}

// Python trees keep it in .../site-packages/nvidia/nccl/lib.
void lookBelow(const fs::path& top, std::set<fs::path>* found) {
  std::error_code ignored;
  fs::recursive_directory_iterator entry(top, fs::directory_options::skip_permission_denied, ignored);
  for (const fs::recursive_directory_iterator end; entry != end; entry.increment(ignored)) {
    if (ignored) return;
    if (!entry->is_directory(ignored)) continue;
    const std::string name = entry->path().filename().string();
    const bool packages = name == "site-packages" || name == "dist-packages";
    if (packages) lookInto(entry->path() / "nvidia/nccl/lib", found);
    if (packages || entry.depth() >= kDepth || name == "proc" || name == "sys")
      entry.disable_recursion_pending();
  }
}

}  // namespace

NcclVersion parseNcclVersion(std::string_view text) {
  NcclVersion version;
  for (int* part : {&version.major, &version.minor, &version.patch}) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *part);
    if (error != std::errc() || *part < 0) return part == &version.major ? NcclVersion{} : version;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.starts_with('.')) break;
    text.remove_prefix(1);
  }
  return version;
}

int tableFor(const NcclVersion& version) {
  for (const FirstRelease& first : kFirst)
    if (!earlier(version, first.version)) return first.table;
  return 0;
}

std::vector<NcclCopy> findNccl() {
  std::set<fs::path> found;
  for (const char* folder :
       {"/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/lib",
        "/usr/local/cuda/lib64", "/usr/local/nccl/lib", "/opt/nccl/lib", "/opt/nccl/build/lib"})
    lookInto(folder, &found);
  for (const char* top : {"/usr/lib", "/usr/local/lib", "/opt", "/root", "/home", "/venv", "/workspace"})
    lookBelow(top, &found);
  std::vector<NcclCopy> copies;
  for (const fs::path& path : found) copies.push_back({path, versionOf(path)});
  return copies;
}

}  // namespace weft::info
