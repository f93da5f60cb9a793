// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <vector>

// NCCL's two complementary binary trees over ranks 0 to size-1: who is a leaf in one has children in the
// other, so that together they use every rank's both directions. Pure functions; any thread.
namespace weft::perf {

struct TreePlace {
  int parent = -1;            // -1: this is the root
  std::vector<int> children;  // at most two
};

// `which` is 0 or 1.
TreePlace treePlace(int rank, int size, int which);

// True where the two are parent and child, either way round.
bool treeNeighbours(int a, int b, int size, int which);

}  // namespace weft::perf
