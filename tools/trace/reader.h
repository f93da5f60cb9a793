// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tools/trace/format.h"
#include "weft/result.h"

// Reads traces. The writer of the file is not trusted: every length is checked. Any thread.
namespace weft::trace {

struct Trace {
  std::string name;                          // the file's
  std::map<std::string, std::string> about;  // host, pid, plugin and the like
  std::vector<Event> events;                 // of all threads, by time
  std::vector<std::string> notes;            // what was dropped, a sentence each

  std::string aboutOf(const std::string& key) const;
  int abi() const;  // of the table that NCCL took; 0: none

  // The memory that the texts of events lie in.
  std::shared_ptr<const std::vector<std::byte>> memory;
};

// A last block that is cut off is dropped, and noted. Anything else that does not fit is an error which names
// the file, the place in it and what to do.
Result<Trace> parseTrace(std::string name, std::vector<std::byte> bytes);
Result<Trace> readTrace(const std::string& path);

// Files as they are; of folders, the files in them that end in .trace, by name.
Result<std::vector<std::string>> findTraces(const std::vector<std::string>& paths);

}  // namespace weft::trace
