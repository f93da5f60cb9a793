// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "src/base/fd.h"

// A folder that others may write to, as WEFT_STATE_DIR of jobs of several users is. All its files are opened
// by their names below the open folder, so that it is one folder from the first look to the last. Only a
// regular file is opened, and no link: a link would have root write to or read from where another
// points, a pipe would stop its reader for ever. A file of several names is refused in a folder that others
// may write to: it may be somebody's own file under a second name. Errors are those of errno. Used by one
// thread; nothing here waits but for the file system.
namespace weft {

class SharedFolder {
 public:
  // The folder itself may be reached by links: its name is the user's own.
  explicit SharedFolder(const std::string& path);
  explicit operator bool() const { return static_cast<bool>(folder_); }
  int error() const { return error_; }  // of opening it; 0: none

  // The names of that ending there, sorted.
  std::vector<std::string> names(const std::string& ending) const;

  struct File {
    Fd fd;
    struct stat facts {};
    int error = 0;  // why there is none; ELOOP: a link, EINVAL: no regular file, EMLINK: of several names
  };
  File read(const std::string& name) const;

  // The first `most` bytes; nothing where it cannot be read.
  std::optional<std::string> text(const std::string& name, size_t most) const;
  // When it was written last, in nanoseconds since 1970; 0: there is no such regular file.
  int64_t writtenAt(const std::string& name) const;

  // These return 0, or errno.
  int touch(const std::string& name) const;  // makes it where it is missing
  int touchExisting(const std::string& name) const;
  // A reader sees the whole of it, or the one before.
  int replace(const std::string& name, const std::string& text, mode_t mode = 0600) const;

 private:
  File open(const std::string& name, int flags, mode_t mode = 0) const;
  bool isOursAlone() const;

  Fd folder_;
  int error_ = 0;
};

// The words of such an error, which name what is wrong with the file.
std::string sharedFileWords(int error);

// A file of /proc/PID/fd, by which the counters of a process are found: regular, or nothing. `path` leads
// there; the rules for names do not count, as the kernel made it.
SharedFolder::File openOfProcess(const std::string& path);

}  // namespace weft
