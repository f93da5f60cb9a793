// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/bench/connections.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/bench/presence.h"

namespace weft::bench {

namespace {

using Time = std::chrono::steady_clock;

constexpr size_t kWordBytes = 8;

double since(Time::time_point start) {
  return std::chrono::duration<double, std::micro>(Time::now() - start).count();
}

void sendOnEach(End& end, size_t from, size_t bytes) {
  for (size_t i = from; i < end.outgoing(); i++)
    while (!end.send(i, bytes)) end.poll();
  for (size_t i = from; i < end.outgoing(); i++)
    while (end.out(i).finished < end.out(i).started) end.poll();
}

void receiveOnEach(End& end, size_t from, size_t bytes) {
  for (size_t i = from; i < end.incoming(); i++) end.expect(i, bytes, 1);
  for (size_t i = from; i < end.incoming(); i++) end.receive(i, 1);
}

size_t numberIn(const char* path, const char* field) {
  std::ifstream in(path);
  for (std::string word; in >> word;) {
    if (word != field) continue;
    size_t value = 0;
    in >> value;
    return value;
  }
  die(std::string(path) + " has no " + field);
}

}  // namespace

Opened openChannels(PluginEnd& end, const Companion& companion, size_t count) {
  Opened opened;
  const Presence presence;
  const auto start = Time::now();
  if (companion.first()) {
    const size_t before = end.outgoing();
    end.connect({count, 0});
    end.use(end.outgoing(), 1);
    sendOnEach(end, before, kWordBytes);
  } else {
    const size_t before = end.incoming();
    end.connect({0, count});
    opened.connected = since(start);
    end.use(end.incoming(), 1);
    receiveOnEach(end, before, kWordBytes);
    opened.received = since(start);
  }
  opened.share = presence.share();
  return opened;
}

void exerciseAll(PluginEnd& end, const Companion& companion, size_t bytes) {
  end.use(std::max(end.outgoing(), end.incoming()), 1);
  if (companion.first()) {
    sendOnEach(end, 0, bytes);
  } else {
    receiveOnEach(end, 0, bytes);
  }
}

std::string processState() {
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  const auto open = std::distance(begin(descriptors), end(descriptors)) - 1;  // without the one that looks
  return std::to_string(numberIn("/proc/self/status", "VmRSS:")) + ' ' + std::to_string(open) + ' ' +
         std::to_string(numberIn("/proc/self/status", "Threads:"));
}

}  // namespace weft::bench
