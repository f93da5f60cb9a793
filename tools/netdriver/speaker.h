// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <string_view>

// The name of the process that says a line on the standard error. Under a launcher the lines of all ranks
// come out of one pipe, so each carries the time, the rank and its host. Set once, before there are threads.
namespace weft::netdriver {

// "rank 3 on node7"; empty: whoever started us says it in front of each line.
void setSpeaker(std::string name);

// "12:34:56.789 rank 3 on node7: " before the first name is set: empty.
std::string speaker();

}  // namespace weft::netdriver
