// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/doctor/world.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <ifaddrs.h>
#include <iterator>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/format.h>

#include "src/base/fd.h"
#include "src/base/number.h"

namespace weft::doctor {

namespace {

namespace fs = std::filesystem;

std::optional<Space> spaceOf(const std::string& path) {
  struct statvfs facts {};
  if (::statvfs(path.c_str(), &facts) != 0) return std::nullopt;
  return Space{uint64_t{facts.f_blocks} * facts.f_frsize, uint64_t{facts.f_bavail} * facts.f_frsize};
}

int prefixOf(const sockaddr* mask) {
  if (!mask) return 0;
  SocketAddress address;
  address.length = mask->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&address.storage, mask, address.length);
  int bits = 0;
  for (const std::byte part : address.ip()) bits += std::popcount(std::to_integer<unsigned>(part));
  return bits;
}

Result<std::vector<HostAddress>> addressesOfThisHost() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return Error(Code::system, "asking for interfaces", "getifaddrs", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(first, ::freeifaddrs);
  std::vector<HostAddress> found;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (!one->ifa_addr || (one->ifa_flags & IFF_UP) == 0) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    HostAddress here;
    here.interface = one->ifa_name;
    here.loopback = (one->ifa_flags & IFF_LOOPBACK) != 0;
    here.address.length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    std::memcpy(&here.address.storage, one->ifa_addr, here.address.length);
    here.prefix = prefixOf(one->ifa_netmask);
    found.push_back(std::move(here));
  }
  return found;
}

std::map<std::string, std::string> environmentOfThisProcess() {
  std::map<std::string, std::string> found;
  for (char** one = ::environ; one != nullptr && *one != nullptr; one++) {
    const std::string_view text = *one;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) found.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return found;
}

// Of a text that begins with a number, as "100 Gb/sec" does.
std::optional<int64_t> leadingNumber(const std::string& text) {
  const size_t end = text.find_first_not_of("-0123456789");
  return parseNumber<int64_t>(std::string_view(text).substr(0, end));
}

}  // namespace

// By descriptor: attributes of the kernel may refuse to be read, which a stream's buffer would throw about.
std::optional<std::string> World::text(std::string_view below) const {
  const Fd file(::open(path(below).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return std::nullopt;
  std::string all;
  std::array<char, 4096> part{};
  while (true) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got < 0) return std::nullopt;
    if (got == 0) return all;
    all.append(part.data(), static_cast<size_t>(got));
  }
}

std::string World::line(std::string_view below) const {
  std::string found = text(below).value_or("");
  found.resize(std::min(found.find('\n'), found.size()));
  while (!found.empty() && found.back() == ' ') found.pop_back();
  return found;
}

std::optional<int64_t> World::number(std::string_view below) const {
  return leadingNumber(line(below));
}

std::vector<std::string> World::names(std::string_view below) const {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path(below), ignored))
    found.push_back(entry.path().filename().string());
  std::sort(found.begin(), found.end());
  return found;
}

std::string World::resolved(std::string_view below) const {
  std::error_code failed;
  const std::string whole = fs::canonical(path(below), failed).string();
  const std::string top = root.empty() ? root : fs::canonical(root, failed).string();
  return failed || !whole.starts_with(top) ? std::string() : whole.substr(top.size());
}

const std::string* World::setting(const std::string& name) const {
  const auto found = environment.find(name);
  return found == environment.end() ? nullptr : &found->second;
}

std::optional<int64_t> World::settingNumber(const std::string& name) const {
  const std::string* value = setting(name);
  return value ? leadingNumber(*value) : std::nullopt;
}

namespace {

// As NCCL finds it, which does not look at HOME. Read while there is one thread.
std::string homeOfThisUser() {
  const passwd* user = ::getpwuid(::getuid());
  return user && user->pw_dir ? user->pw_dir : "";
}

}  // namespace

World thisWorld() {
  World world;
  world.home = homeOfThisUser();
  world.space = spaceOf;
  world.addresses = addressesOfThisHost;
  world.environment = environmentOfThisProcess();
  return world;
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> found;
  constexpr std::string_view kBlanks = " \t\r\n";
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    if (text.empty()) return found;
    const size_t end = std::min(text.find_first_of(kBlanks), text.size());
    found.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

std::vector<std::string> lines(std::string_view text) {
  std::vector<std::string> found;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    found.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return found;
}

std::string sizeText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    unit++;
  }
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

}  // namespace weft::doctor
