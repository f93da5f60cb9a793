// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/topo/sysfs.h"

#include <array>
#include <cctype>
#include <fcntl.h>
#include <unistd.h>

#include "src/base/fd.h"

// Reading an attribute.
namespace weft::topo {

std::string readLine(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  std::array<char, 256> buffer{};
  const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
  std::string text(buffer.data(), n > 0 ? static_cast<size_t>(n) : 0);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

}  // namespace weft::topo
