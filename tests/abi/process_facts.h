// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <set>
#include <string>

// What /proc says about this process: its threads, descriptors and mappings. Any thread.
namespace weft::abi {

std::set<int> threads();      // by id
std::set<int> descriptors();  // without the one used to look
bool mapped();                // whether the library under test is in memory

std::string threadName(int thread);
uint64_t blockedSignals(int thread);  // bit n - 1 stands for signal n
long processorTicks(int thread);      // used so far; sysconf(_SC_CLK_TCK) make a second

// Nothing of the library runs any more. A thread that was joined may be listed a moment longer.
bool settledAt(const std::set<int>& threadsBefore);

}  // namespace weft::abi
