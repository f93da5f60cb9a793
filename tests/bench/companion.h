// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>
#include <string>
#include <sys/types.h>

#include "src/base/bytes.h"
#include "weft/result.h"

// The two processes of a bench and the pipes between them: for addresses, and for saying what is measured
// next. One thread; every wait ends with the watchdog, which ends the process.
namespace weft::bench {

[[noreturn]] void die(const std::string& why);

template <class T>
T must(Result<T> result) {
  if (!result) die(result.error().message());
  return result.take();
}
void must(const Status& status);

// From now on this process has that long before it is ended.
void watchdog(unsigned seconds);

class Companion {
 public:
  // Forks: the caller goes on as the first process, its child as the second. The child dies with its parent.
  static Companion start();

  bool first() const { return first_; }
  void put(std::span<const std::byte> message) const;
  Bytes get() const;  // waits for the other's next put
  // The same, without sleeping: for measures that must not include a process being woken.
  Bytes getBusily() const;
  void putText(const std::string& text) const { put(std::as_bytes(std::span(text))); }
  std::string getText() const;

 private:
  Companion(int from, int to, bool first) : from_(from), to_(to), first_(first) {}
  void writeAll(const void* from, size_t bytes) const;
  void readAll(void* to, size_t bytes) const;

  int from_, to_;
  bool first_;
};

}  // namespace weft::bench
