// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What a soak does, drawn from seeds: both ends of a connection draw the same messages from the same seed, so
// only the seed crosses between them. Values; any thread.
namespace weft::soak {

// One message and the receive it goes to.
struct Message {
  size_t bytes = 0;
  size_t room = 0;    // of its receive, at least its bytes
  size_t offset = 0;  // of the receive in the row of its group
  int tag = 0;
  uint64_t seed = 0;  // of its bytes
};

// Receives posted by one call.
struct Group {
  std::vector<Message> parts;
};

// The traffic of one comm.
struct Traffic {
  std::vector<Group> groups;
  size_t rowBytes = 0;  // what the largest group needs, with unused bytes around each receive
  size_t mostBytes = 0;
};

Traffic drawTraffic(uint64_t seed, int mostReceives);

// Rules for the fault injector, as WEFT_PROVIDER takes them. The gentle ones cost time and nothing else; a
// harsh one costs messages, lanes or whole connections.
std::string gentleRules(uint64_t seed);
std::string harshRules(uint64_t seed);

}  // namespace weft::soak
