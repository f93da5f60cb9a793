// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace softefa {

// What a NIC of this host can do; each generation can do all of the one before.
enum class Generation { send, read, write, unsolicited, inOrder };

// The card's PCI device number. libfabric 2 ends a process whose card is of a number that can do more than it
// says.
constexpr unsigned partOf(Generation generation) {
  return generation == Generation::send ? 0xefa0 : generation == Generation::read ? 0xefa1 : 0xefa2;
}

// The misuses that strict mode ends the process for; bits of Settings::strict.
enum StrictCheck : unsigned {
  kStrictCq = 1,       // a completion queue overran
  kStrictMr = 2,       // memory was used after its registration ended
  kStrictOverlap = 4,  // bytes of a write landed on those of a newer one of its queue pair
  kStrictAh = 8,       // an address handle is missing or was destroyed
  kStrictState = 16,   // work was posted to a queue pair that cannot take it
};

// The settings of this process's virtual host, from SOFTEFA_* (README.md has the table). Plain data; read
// anew with each device list, so that a test can change them between two lists.
struct Settings {
  std::string directory = "/dev/shm";  // where the fabric's files lie
  std::string fabric = "fabric";       // hosts of different fabrics do not see each other
  std::string host = "host";           // name of this virtual host
  unsigned nics = 1;
  Generation generation = Generation::inOrder;
  std::vector<std::string> pci;  // dddd:bb:dd.f, one a NIC
  std::vector<int> numa;         // one a NIC
  unsigned strict = 0;           // StrictCheck bits
  unsigned batch = 1;            // completions that show at once
  unsigned maxAddressHandles = 4096;
  unsigned maxRegions = (1 << 16) - 1;  // registrations a NIC has
  uint64_t lockedBytes = UINT64_MAX;    // that may be registered with a NIC, as RLIMIT_MEMLOCK has it
  std::chrono::milliseconds unresponsive{1000};  // a peer that is gone is given up after this time
  std::string faults;                            // what faults.h reads, and understood
  std::string control;                           // a file with faults, read again whenever it changes
  uint64_t seed = 1;
  bool statistics = false;  // counters go to stderr when a device is closed
};

// Reads the environment. On a value it does not understand it says so on stderr and returns false.
bool readSettings(Settings& settings);

// A variable of the environment; nullptr when it is unset.
const char* environment(const char* name);

// "a,b;c d" as {a, b, c, d}.
std::vector<std::string> splitList(const std::string& text);

// The whole of `text` as a number with an optional unit of time (us, ms, s; plain: us).
bool parseDuration(const std::string& text, std::chrono::microseconds& value);
bool parseNumber(const std::string& text, uint64_t& value);

}  // namespace softefa
