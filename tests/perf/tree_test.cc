// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/tree.h"

#include "tests/support/catch.h"

namespace weft::perf {

namespace {

int stepsToRoot(int rank, int size, int which) {
  int steps = 0;
  for (int at = rank; treePlace(at, size, which).parent >= 0 && steps <= size; ++steps)
    at = treePlace(at, size, which).parent;
  return steps;
}

TEST_CASE("both trees are trees, binary and shallow") {
  for (int size = 1; size <= 70; ++size) {
    for (const int which : {0, 1}) {
      INFO(size << " ranks, tree " << which);
      int roots = 0;
      int edges = 0;
      for (int rank = 0; rank < size; ++rank) {
        const TreePlace place = treePlace(rank, size, which);
        roots += place.parent < 0 ? 1 : 0;
        edges += static_cast<int>(place.children.size());
        REQUIRE(place.children.size() <= 2);
        REQUIRE((1 << stepsToRoot(rank, size, which)) <= 2 * size);
        for (const int child : place.children) {
          REQUIRE(treePlace(child, size, which).parent == rank);
          REQUIRE(treeNeighbours(rank, child, size, which));
        }
      }
      REQUIRE(roots == 1);
      REQUIRE(edges == size - 1);
    }
  }
}

TEST_CASE("with an even number of ranks a leaf of one tree has children in the other") {
  for (int size = 4; size <= 64; size += 2) {
    for (int rank = 0; rank < size; ++rank) {
      INFO(rank << " of " << size);
      const bool first = treePlace(rank, size, 0).children.empty();
      const bool second = treePlace(rank, size, 1).children.empty();
      REQUIRE(first != second);
    }
  }
}

}  // namespace

}  // namespace weft::perf
