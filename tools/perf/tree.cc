// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/tree.h"

namespace weft::perf {

namespace {

// In the first tree rank 0 is the root, and the parent of a number replaces its lowest bit by the next higher
// one: 1 and 3 are below 2, 2 and 6 below 4. Where that is beyond the last rank, the bit is only taken away.
int firstParent(int rank, int size) {
  if (rank == 0) return -1;
  const int bit = rank & -rank;
  const int above = (rank ^ bit) | bit << 1;
  return above < size ? above : rank ^ bit;
}

// The second tree is the first, mirrored where that swaps odd and even ranks, else shifted by one.
int toFirst(int rank, int size, int which) {
  if (which == 0) return rank;
  return size % 2 == 0 ? size - 1 - rank : (rank + size - 1) % size;
}

int fromFirst(int rank, int size, int which) {
  if (which == 0) return rank;
  return size % 2 == 0 ? size - 1 - rank : (rank + 1) % size;
}

int parentOf(int rank, int size, int which) {
  const int parent = firstParent(toFirst(rank, size, which), size);
  return parent < 0 ? -1 : fromFirst(parent, size, which);
}

}  // namespace

TreePlace treePlace(int rank, int size, int which) {
  TreePlace place;
  place.parent = parentOf(rank, size, which);
  for (int other = 0; other < size; ++other)
    if (parentOf(other, size, which) == rank) place.children.push_back(other);
  return place;
}

bool treeNeighbours(int a, int b, int size, int which) {
  return parentOf(a, size, which) == b || parentOf(b, size, which) == a;
}

}  // namespace weft::perf
