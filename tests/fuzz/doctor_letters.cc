// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <span>
#include <string>
#include <string_view>

#include "src/base/net/address.h"
#include "tests/fuzz/target.h"
#include "tools/doctor/letter.h"
#include "tools/doctor/mend.h"

// Letters of ranks of `weft doctor --all`. Whatever is in one, the script for root of this host has no
// command of it, and each of its mends is whole.
using namespace weft;

namespace {

bool isHarmless(const std::string& script) {
  for (size_t at = 0; at < script.size();) {
    const size_t end = std::min(script.find('\n', at), script.size());
    const std::string line = script.substr(at, end - at);
    if (!line.empty() && line.front() != '#' && line != "set -e") return false;
    at = end + 1;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string letter(reinterpret_cast<const char*>(data), size);
  doctor::Node node;
  uint16_t port = 0;
  if (doctor::readNode(letter, &node, &port))
    for (const std::string& address : node.addresses) fuzz::demand(isIpText(address), "an address is one");
  const doctor::HostReport report = doctor::readReport(letter);
  for (const doctor::Finding& one : report.findings) fuzz::demand(isWhole(one.mend), "a mend is whole");
  fuzz::demand(isHarmless(doctor::fixScript({report})), "no line of another host is a command");
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  std::vector<Input> inputs;
  const doctor::HostReport report{
      "node7",
      {{doctor::Severity::error, "memory", "/dev/shm", "64 MiB", doctor::byRoot(doctor::Cure::enlargeShm)},
       {doctor::Severity::note, "interfaces", "eth1", "down",
        doctor::byRoot(doctor::Cure::bringUp, {"eth1"})},
       {doctor::Severity::note, "settings", "A", "b", doctor::bySetting("A=1")}},
      doctor::Where::elsewhere};
  const doctor::Node node{"node7", {{"kernel", "6.1"}}, {"192.0.2.7", "2001:db8::1"}};
  for (const std::string& text : {doctor::reportLetter(report), doctor::nodeLetter(node, 4711)}) {
    const auto bytes = std::as_bytes(std::span(text));
    inputs.emplace_back(bytes.begin(), bytes.end());
  }
  return inputs;
}
