// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/topo/nic_facts.h"

#include <array>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <string_view>
#include <unistd.h>

#include "src/base/fnv.h"
#include "src/base/number.h"
#include "src/topo/sysfs.h"

// Attributes of network cards in sysfs.
namespace weft::topo {

namespace {

// The number at the begin of a line; a unit may follow ("100 Gb/sec (4X EDR)").
int readInt(const std::string& path, int missing) {
  const std::string text = readLine(path);
  return parseNumber<int>(text.substr(0, text.find(' '))).value_or(missing);
}

// A number in hexadecimal digits; colons are dropped: "02:fc:00:00:00:01", "506b:4b03:00c4:1a2e".
uint64_t readHexGuid(const std::string& path) {
  std::string digits;
  for (const char c : readLine(path)) {
    if (c != ':') digits.push_back(c);
  }
  return parseNumber<uint64_t>(digits, 16).value_or(0);
}

// True for a PCI address such as "0000:3b:00.1".
bool isPciAddress(std::string_view part) {
  constexpr std::string_view kShape = "hhhh:hh:hh.h";
  if (part.size() != kShape.size()) return false;
  for (size_t i = 0; i < part.size(); i++) {
    const bool fits =
        kShape[i] == 'h' ? std::isxdigit(static_cast<unsigned char>(part[i])) != 0 : part[i] == kShape[i];
    if (!fits) return false;
  }
  return true;
}

// The PCI function of a card. The card's own directory may be below it (virtio0), but cards are compared by
// their functions.
std::string pciDirectory(const std::string& link) {
  std::array<char, PATH_MAX> resolved{};
  if (!::realpath(link.c_str(), resolved.data())) return {};
  std::string path(resolved.data());
  while (!path.empty()) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return {};
    if (isPciAddress(std::string_view(path).substr(slash + 1))) return path;
    path.resize(slash);
  }
  return {};
}

void readBusFacts(const std::string& directory, NicFacts* facts) {
  facts->pciPath = pciDirectory(directory + "/device");
  facts->numaNode =
      readInt((facts->pciPath.empty() ? directory + "/device" : facts->pciPath) + "/numa_node", -1);
  facts->virtualFunction =
      !facts->pciPath.empty() && ::access((facts->pciPath + "/physfn").c_str(), F_OK) == 0;
}

}  // namespace

NicFacts netdevFacts(const std::string& name, const std::string& root) {
  const std::string directory = root + "/class/net/" + name;
  NicFacts facts;
  readBusFacts(directory, &facts);
  // Virtual cards report -1, or refuse the read.
  const int speed = readInt(directory + "/speed", 0);
  facts.speedMbps = speed > 0 ? speed : 0;
  facts.mtu = readInt(directory + "/mtu", 0);
  facts.linkLayer = "Ethernet";
  facts.guid = readHexGuid(directory + "/address");
  return facts;
}

NicFacts rdmaFacts(const std::string& name, int port, const std::string& root) {
  const std::string directory = root + "/class/infiniband/" + name;
  const std::string portDirectory = directory + "/ports/" + std::to_string(port);
  NicFacts facts;
  readBusFacts(directory, &facts);
  facts.speedMbps = readInt(portDirectory + "/rate", 0) * 1000;  // "100 Gb/sec (4X EDR)"
  facts.linkLayer = readLine(portDirectory + "/link_layer");
  facts.guid = readHexGuid(directory + "/sys_image_guid");
  if (facts.guid == 0) facts.guid = readHexGuid(directory + "/node_guid");
  return facts;
}

uint64_t madeUpGuid(const std::string& host, const std::string& name) {
  const uint64_t hash = fnv1a(host + '/' + name);
  return hash ? hash : 1;
}

}  // namespace weft::topo
