// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <netinet/in.h>
#include <string>

// Which interface the baseline uses: the first that is up, has an IPv4 address and is not the loopback one,
// or else that. Its name and address do not change while the process lives. Any thread.
namespace weft::baseline {

struct Interface {
  std::string name;
  sockaddr_in address{};
  int speedMbps = 10000;  // what the kernel says, or this
};

const Interface& chosenInterface();

}  // namespace weft::baseline
