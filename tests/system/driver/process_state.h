// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

// What /proc says about this process: what a plugin must give back, or must not change. Any thread.
namespace weft::system {

struct ThreadState {
  pid_t id = 0;
  std::string name;
  uint64_t blockedSignals = 0;
  uint64_t cpuTicks = 0;
};

struct DescriptorState {
  int fd = -1;
  std::string target;
  bool closeOnExec = false;
};

std::vector<ThreadState> threads();
std::vector<ThreadState> threadsNamed(const std::string& prefix);
// What stays of them. A thread that was joined is listed for a moment longer: the kernel wakes the joiner
// before it takes the task off the list. Waits up to a second for that.
std::vector<ThreadState> threadsLeft(const std::string& prefix);
// At most so many threads are left, now or within a second, for the same reason.
bool threadsFallTo(size_t most);
std::vector<DescriptorState> descriptors();
// A line of /proc/self/maps contains the text.
bool isMapped(const std::string& text);
uint64_t residentBytes();

// Ports on which this process (not its children) has a listening TCP socket, each once, in the order in which
// they were opened.
std::vector<uint16_t> listeningPorts();

}  // namespace weft::system
