// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/shared_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <unistd.h>

#include "src/base/advice.h"

// Files relative to an open folder, by openat(2).
namespace weft {

namespace {

// A terminal that is opened must not become the one of this process, and nothing that is opened may wait.
constexpr int kCareful = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// A name of a folder's own entry.
bool isPlain(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

int writeAll(const Fd& file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(file.get(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return errno;
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
  return 0;
}

}  // namespace

SharedFolder::SharedFolder(const std::string& path)
    : folder_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), error_(folder_ ? 0 : errno) {}

std::vector<std::string> SharedFolder::names(const std::string& ending) const {
  std::vector<std::string> found;
  Fd copy(folder_ ? ::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1);
  if (!copy) return found;
  const std::unique_ptr<DIR, CloseFolder> entries(::fdopendir(copy.get()));
  if (!entries) return found;
  (void)copy.release();  // it is closed with the entries
  while (const dirent* entry = ::readdir(entries.get())) {
    std::string name = entry->d_name;
    if (isPlain(name) && name.size() > ending.size() && name.ends_with(ending))
      found.push_back(std::move(name));
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool SharedFolder::isOursAlone() const {
  struct stat facts {};
  return ::fstat(folder_.get(), &facts) == 0 && facts.st_uid == ::geteuid() &&
         (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

SharedFolder::File SharedFolder::open(const std::string& name, int flags, mode_t mode) const {
  File file;
  if (!folder_ || !isPlain(name)) {
    file.error = folder_ ? EINVAL : error_;
    return file;
  }
  file.fd = Fd(::openat(folder_.get(), name.c_str(), flags | kCareful, mode));
  if (!file.fd || ::fstat(file.fd.get(), &file.facts) != 0)
    file.error = errno == ENXIO ? EINVAL : errno;  // a pipe without a reader
  else if (!S_ISREG(file.facts.st_mode))
    file.error = EINVAL;
  else if (file.facts.st_nlink > 1 && !isOursAlone())
    file.error = EMLINK;
  if (file.error != 0) file.fd.reset();
  return file;
}

SharedFolder::File SharedFolder::read(const std::string& name) const {
  return open(name, O_RDONLY);
}

std::optional<std::string> SharedFolder::text(const std::string& name, size_t most) const {
  const File file = read(name);
  if (!file.fd) return std::nullopt;
  const auto size = static_cast<size_t>(std::max<off_t>(file.facts.st_size, 0));
  std::string text(std::min(most, size), '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t more = ::read(file.fd.get(), text.data() + got, text.size() - got);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) break;
    got += static_cast<size_t>(more);
  }
  text.resize(got);
  return text;
}

int64_t SharedFolder::writtenAt(const std::string& name) const {
  struct stat facts {};
  if (!folder_ || !isPlain(name) ||
      ::fstatat(folder_.get(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(facts.st_mode))
    return 0;
  return int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
}

int SharedFolder::touchExisting(const std::string& name) const {
  const File file = open(name, O_WRONLY);
  if (!file.fd) return file.error;
  return ::futimens(file.fd.get(), nullptr) == 0 ? 0 : errno;
}

// A file that is there is opened without O_CREAT: the kernel refuses that to root for another user's file in
// a folder like /tmp (protected_regular). Everybody may touch the new one, as far as the mask lets them.
int SharedFolder::touch(const std::string& name) const {
  if (const int error = touchExisting(name); error != ENOENT) return error;
  return open(name, O_WRONLY | O_CREAT | O_EXCL, 0666).error;
}

// The rest of an earlier try, of a process that has ended, goes first. Another user's cannot be removed in a
// folder like /tmp, and then there is nothing to write to.
int SharedFolder::replace(const std::string& name, const std::string& text, mode_t mode) const {
  const std::string fresh = name + ".new";
  File file = open(fresh, O_WRONLY | O_CREAT | O_EXCL, mode);
  if (file.error == EEXIST && ::unlinkat(folder_.get(), fresh.c_str(), 0) == 0)
    file = open(fresh, O_WRONLY | O_CREAT | O_EXCL, mode);
  if (file.error != 0) return file.error;
  if (const int error = writeAll(file.fd, text); error != 0) return error;
  return ::renameat(folder_.get(), fresh.c_str(), folder_.get(), name.c_str()) == 0 ? 0 : errno;
}

std::string sharedFileWords(int error) {
  switch (error) {
    case ELOOP:
      return "it is a link, and those are not followed in a folder that others may write to";
    case EINVAL:
      return "it is no regular file";
    case EMLINK:
      return "it has a second name elsewhere, and the folder is not this user's alone";
    default:
      return errnoWords(error);
  }
}

// The kind is asked before it is opened: opening some devices does something.
SharedFolder::File openOfProcess(const std::string& path) {
  SharedFolder::File file;
  struct stat before {};
  if (::stat(path.c_str(), &before) != 0) {
    file.error = errno;
  } else if (!S_ISREG(before.st_mode)) {
    file.error = EINVAL;
  } else {
    file.fd = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!file.fd || ::fstat(file.fd.get(), &file.facts) != 0)
      file.error = errno;
    else if (!S_ISREG(file.facts.st_mode))
      file.error = EINVAL;
    if (file.error != 0) file.fd.reset();
  }
  return file;
}

}  // namespace weft
