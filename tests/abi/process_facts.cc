// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/abi/process_facts.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace weft::abi {

namespace {

std::set<int> numbersIn(const char* directory) {
  std::set<int> numbers;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    numbers.insert(std::stoi(entry.path().filename().string()));
  return numbers;
}

std::string taskFile(int thread, const char* name) {
  return "/proc/self/task/" + std::to_string(thread) + "/" + name;
}

}  // namespace

std::set<int> threads() {
  return numbersIn("/proc/self/task");
}

// The descriptor of the listing itself is gone by the time it is asked about.
std::set<int> descriptors() {
  std::set<int> open;
  for (const int fd : numbersIn("/proc/self/fd"))
    if (std::filesystem::is_symlink("/proc/self/fd/" + std::to_string(fd))) open.insert(fd);
  return open;
}

bool mapped() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("libnccl-net-weft") != std::string::npos) return true;
  return false;
}

std::string threadName(int thread) {
  std::ifstream file(taskFile(thread, "comm"));
  std::string name;
  std::getline(file, name);
  return name;
}

uint64_t blockedSignals(int thread) {
  std::ifstream file(taskFile(thread, "status"));
  for (std::string line; std::getline(file, line);)
    if (line.rfind("SigBlk:", 0) == 0) return std::stoull(line.substr(7), nullptr, 16);
  return 0;
}

long processorTicks(int thread) {
  std::ifstream file(taskFile(thread, "stat"));
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 2));  // the name may hold anything
  std::string skipped;
  for (int i = 0; i < 11; i++) fields >> skipped;
  long user = 0, kernel = 0;
  fields >> user >> kernel;
  return user + kernel;
}

bool settledAt(const std::set<int>& threadsBefore) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (threads() != threadsBefore)
    if (std::chrono::steady_clock::now() > end) return false;
  return true;
}

}  // namespace weft::abi
