// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

// The plugin that is recorded: opened once a process, never closed. Any thread.
namespace weft::record {

class Wrapped {
 public:
  Wrapped();  // use instance()
  static Wrapped& instance();

  // Opens it and the trace; fine, or what is wrong and what to do about it.
  const std::string& error() const { return error_; }
  const std::string& path() const { return path_; }
  // ncclNetPlugin_v<version>, or null where it has none; and ncclCollNetPlugin_v<version>, and
  // ncclRmaPlugin_v<version>.
  void* table(int version) const;
  void* collTable(int version) const;
  void* rmaTable(int version) const;
  // A table that a plugin need not have, of the kind "for something". Null where there is none or the plugin
  // cannot be used; then it is logged that nothing of that is recorded.
  void* usable(void* table, int version, const char* kind) const;
  std::string versions() const;

 private:
  void open();
  bool isOurselves() const;

  std::string path_;
  std::string error_;
  void* library_ = nullptr;
};

}  // namespace weft::record
