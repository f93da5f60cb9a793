// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/nccl/api.h"

namespace nccltest {

// One rank, in a thread of its own or in a process.
struct Rank {
  int rank = 0, ranks = 0;
  Comm comm = nullptr;
  Stream stream = nullptr;
};

// One all_reduce of that many floats, every element checked.
bool sums(const Rank& rank, size_t count);
// Waits for the stream; an error of the communicator ends the program.
bool finish(const Rank& rank, const char* what);

// A rank that has its result may still owe others theirs: NCCL's proxy sends on, and an abort or a death ends
// it.
void letOthersFinish();

// What communicators live through: comms.cc.
bool several(Rank& rank);
bool shrink(Rank& rank);
bool nonBlocking(Rank& rank);
bool again(Rank& rank);
bool forked(Rank& rank);
bool registered(Rank& rank);
// One-sided operations: windows.cc.
bool windows(Rank& rank);
bool putSignal(Rank& rank);
bool putSignalGraph(Rank& rank);
bool putSignalSeveral(Rank& rank);
bool putSignalAbort(Rank& rank);
bool putSignalKilled(Rank& rank);
// The same as a kernel asks for it: kernel_puts.cc.
bool kernelPuts(Rank& rank);
// The unique id of another communicator of the same ranks.
UniqueId agreeOnId(const Rank& rank);
// Rank 1 is lost: killed, stopped, or gone in order.
bool killed(Rank& rank);
bool stopped(Rank& rank);
bool left(Rank& rank);

// The network is cut meanwhile: outages.cc.
bool steady(Rank& rank);
bool cutOff(Rank& rank);

// Runs a case by name, on all ranks at once. False: something was wrong, and was told.
bool runCase(const std::string& name, Rank& rank);
std::vector<std::string> caseNames();

}  // namespace nccltest
