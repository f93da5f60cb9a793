// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/system/driver/process_state.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <unistd.h>

namespace weft::system {

namespace fs = std::filesystem;

namespace {

constexpr const char* kListenState = "0A";

std::string firstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value after "Name:" in a status file.
std::string statusField(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return line.substr(line.find_first_not_of(" \t", name.size() + 1));
  return {};
}

// utime + stime: fields 14 and 15; the name before them may contain blanks.
uint64_t cpuTicksOf(const fs::path& task) {
  const std::string line = firstLine(task / "stat");
  const size_t nameEnd = line.rfind(')');
  if (nameEnd == std::string::npos) return 0;
  std::istringstream fields(line.substr(nameEnd + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  uint64_t user = 0;
  uint64_t kernel = 0;
  fields >> user >> kernel;
  return user + kernel;
}

// Their descriptors, by the numbers of their inodes.
std::map<std::string, int> ownSockets() {
  std::map<std::string, int> sockets;
  for (const DescriptorState& d : descriptors())
    if (d.target.starts_with("socket:[")) sockets.emplace(d.target.substr(8, d.target.size() - 9), d.fd);
  return sockets;
}

// By descriptor: those that stay open are numbered as they are made. The kernel's own numbers are not, as
// each processor takes them from a batch of its own.
void addListeningPorts(const char* table, const std::map<std::string, int>& sockets,
                       std::map<int, uint16_t>* ports) {
  std::ifstream file(table);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
    if (state != kListenState || !sockets.contains(inode)) continue;
    const std::string hex = local.substr(local.rfind(':') + 1);
    uint16_t port = 0;
    std::from_chars(hex.data(), hex.data() + hex.size(), port, 16);
    ports->emplace(sockets.at(inode), port);
  }
}

}  // namespace

std::vector<ThreadState> threads() {
  std::vector<ThreadState> all;
  std::error_code ignored;
  for (const auto& task : fs::directory_iterator("/proc/self/task", ignored)) {
    ThreadState state;
    state.id = static_cast<pid_t>(std::stol(task.path().filename().string()));
    state.name = firstLine(task.path() / "comm");
    const std::string blocked = statusField(task.path() / "status", "SigBlk");
    if (!blocked.empty()) state.blockedSignals = std::stoull(blocked, nullptr, 16);
    state.cpuTicks = cpuTicksOf(task.path());
    all.push_back(state);
  }
  return all;
}

std::vector<ThreadState> threadsNamed(const std::string& prefix) {
  auto all = threads();
  std::erase_if(all, [&](const ThreadState& t) { return !t.name.starts_with(prefix); });
  return all;
}

namespace {

template <class Condition>
bool withinASecond(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

std::vector<ThreadState> threadsLeft(const std::string& prefix) {
  std::vector<ThreadState> left;
  withinASecond([&] { return (left = threadsNamed(prefix)).empty(); });
  return left;
}

bool threadsFallTo(size_t most) {
  return withinASecond([&] { return threads().size() <= most; });
}

std::vector<DescriptorState> descriptors() {
  std::vector<DescriptorState> all;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd", ignored)) {
    DescriptorState state;
    state.fd = std::stoi(entry.path().filename().string());
    state.target = fs::read_symlink(entry.path(), ignored).string();
    const int flags = ::fcntl(state.fd, F_GETFD);
    state.closeOnExec = flags >= 0 && (flags & FD_CLOEXEC) != 0;
    // The directory that is being read is open too.
    if (flags >= 0 && state.target.find("/proc/") == std::string::npos) all.push_back(state);
  }
  return all;
}

bool isMapped(const std::string& text) {
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);)
    if (line.find(text) != std::string::npos) return true;
  return false;
}

uint64_t residentBytes() {
  std::istringstream fields(firstLine("/proc/self/statm"));
  uint64_t total = 0;
  uint64_t resident = 0;
  fields >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::vector<uint16_t> listeningPorts() {
  std::map<int, uint16_t> byDescriptor;
  const auto sockets = ownSockets();
  addListeningPorts("/proc/self/net/tcp", sockets, &byDescriptor);
  addListeningPorts("/proc/self/net/tcp6", sockets, &byDescriptor);
  std::vector<uint16_t> ports;
  for (const auto& [fd, port] : byDescriptor)
    if (std::find(ports.begin(), ports.end(), port) == ports.end()) ports.push_back(port);
  return ports;
}

}  // namespace weft::system
