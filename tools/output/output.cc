// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/output/output.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/advice.h"
#include "src/base/fd.h"

namespace weft {

namespace {

Error failure(const std::string& what, int errnum) {
  return {Code::system, "write results", what, errnum};
}

}  // namespace

Status show(std::string_view text) {
  const bool taken = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (taken && std::fflush(stdout) == 0) return {};
  return failure("standard output", errno);
}

Status writeDocument(const std::string& path, const std::string& text) {
  if (path == "-") return show(text);
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) return failure(path, errno);
  return {};
}

Status writeDocuments(const std::vector<Document>& documents) {
  std::string failed;
  for (const Document& document : documents) {
    if (document.path.empty()) continue;
    const Status written = writeDocument(document.path, document.text);
    if (written) continue;
    const std::string reason = errnoWords(written.error().errnum());
    failed += (failed.empty() ? "" : "; ") + written.error().detail() + " (" + reason + ")";
  }
  if (failed.empty()) return {};
  return failure(failed, 0);
}

// A pipe or a device is not opened: that alone may be noticed at its other end.
Status canWrite(const std::string& path) {
  if (path.empty() || path == "-") return {};
  struct stat there {};
  const bool exists = ::stat(path.c_str(), &there) == 0;
  if (exists && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) return {};
  constexpr mode_t kEverybody = 0666;
  const Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | (exists ? 0 : O_CREAT | O_EXCL), kEverybody));
  if (!file) return failure(path, errno);
  if (!exists) ::unlink(path.c_str());
  return {};
}

int exitCodeOf(const Error& error) {
  return error.code() == Code::config || error.code() == Code::invalidArgument ? 2 : 1;
}

void occupyStandardFiles() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The wrong way round, so that its use fails as that of a closed one does.
    if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
  }
}

}  // namespace weft
